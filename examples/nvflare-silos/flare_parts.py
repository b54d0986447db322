"""A controller and an executor for FLARE that start Flower 1.41 and carry its requests as FLARE's messages.

FLARE's own (`nvflare.app_opt.flower`) start Flower by options that it no longer has. These are subclasses
with other programs (applets) and another messenger (connectors); all else is FLARE's.
"""

from __future__ import annotations

import shlex
import socket
import sys
import time
from pathlib import Path
from typing import Any

from http_relay import UNAVAILABLE, Listener, Request, Response, call
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReturnCode, Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.tie.process_mgr import CommandDescriptor, StopMethod
from nvflare.app_opt.flower.applet import FlowerClientApplet, FlowerServerApplet
from nvflare.app_opt.flower.connectors.flower_connector import FlowerClientConnector, FlowerServerConnector
from nvflare.app_opt.flower.controller import FlowerController
from nvflare.app_opt.flower.defs import Constant
from nvflare.app_opt.flower.executor import FlowerExecutor
from nvflare.fuel.utils.network_utils import get_local_addresses
from own_log import with_own_log

ADDRESS = "address"


class ServerApplet(FlowerServerApplet):
    """A SuperLink on 127.0.0.1, and one run of the app that came with the job."""

    def start(self, app_ctx: dict[str, Any]) -> None:
        context, address = app_ctx[Constant.APP_CTX_FL_CONTEXT], app_ctx[ADDRESS]
        workspace, job = context.get_engine().get_workspace(), context.get_job_id()
        self.flower_app_dir, self.exec_api_addr = workspace.get_app_custom_dir(job), address
        self.flwr_home_dir = self._prepare_flwr_home(workspace.get_run_dir(job))
        host, _, port = address.rpartition(":")
        program = str(Path(sys.executable).parent / "flower-superlink")
        options = ["--insecure", "--disable-runtime-dependency-installation", "--host", host, "--port", port]
        command = CommandDescriptor(
            cmd=shlex.join([program, *options]),
            cwd=workspace.get_run_dir(job),
            env=self._build_flower_env(include_flwr_home=True),
            log_file_name="superlink_log.txt",
            stdout_msg_prefix="FLWR-SL",
            stop_method=StopMethod.TERMINATE,
        )
        self._superlink_process_mgr = self._start_process("superlink", command, context)
        wait_for(host, int(port), self.superlink_ready_timeout)
        self.run_id = self._run_flower_command(self._flower_command("run"), cwd=self.flower_app_dir)["run-id"]


def wait_for(host: str, port: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((host, port), 1.0).close()
        except OSError:
            if time.monotonic() > end:
                raise RuntimeError(f"the SuperLink does not answer within {seconds:g} s") from None
            time.sleep(0.5)


class ServerConnector(FlowerServerConnector):
    """Makes the sites' requests to the SuperLink."""

    def start(self, fl_ctx: FLContext) -> None:
        self.address = get_local_addresses(1)[0]
        self.start_applet({ADDRESS: self.address}, fl_ctx)

    def stop(self, fl_ctx: FLContext) -> None:
        self.stop_applet()

    def process_app_request(self, op: str, request: Shareable, fl_ctx: FLContext, abort: Signal) -> Shareable:
        # FLARE's own first asks whether the run has ended, and may wait for `flwr list`; heartbeats have 5 s
        return self.send_request_to_flower(request, fl_ctx)

    def send_request_to_flower(self, request: Shareable, fl_ctx: FLContext) -> Shareable:
        wanted = Request(request["method"], request["path"], request["headers"], request["body"])
        reply = make_reply(ReturnCode.OK)
        reply.update(vars(call(self.address, wanted)))
        return reply


class ClientApplet(FlowerClientApplet):
    """A SuperNode: FLARE's command, with the options of Flower 1.41."""

    def get_command(self, ctx: dict[str, Any]) -> CommandDescriptor:
        command = super().get_command(ctx)
        words = shlex.split(command.cmd)
        words.remove("--grpc-adapter")
        place = words.index("--clientappio-api-address")
        host, _, port = words[place + 1].rpartition(":")
        words[place : place + 2] = ["--host", host, "--port", port]
        context = ctx[Constant.APP_CTX_FL_CONTEXT]
        log = context.get_engine().get_workspace().get_run_dir(context.get_job_id())
        command.cmd = with_own_log(shlex.join(words), Path(log) / command.log_file_name)
        command.log_file_name = ""
        return command


class ClientConnector(FlowerClientConnector):
    """Takes the SuperNode's requests, and sends them to the server as FLARE's messages."""

    listener: Listener | None = None

    def start(self, fl_ctx: FLContext) -> None:
        self.listener = Listener(self.carry)
        addresses = {
            Constant.APP_CTX_SUPERLINK_ADDR: self.listener.address,
            Constant.APP_CTX_CLIENTAPP_API_ADDR: get_local_addresses(1)[0],
        }
        self.start_applet(addresses, fl_ctx)

    def stop(self, fl_ctx: FLContext) -> None:
        self.stop_applet(1.0)
        if self.listener is not None:
            self.listener.close()

    def carry(self, request: Request) -> Response:
        message = Shareable()
        message.update(vars(request))
        reply = self._send_flower_request(message)
        if reply.get_return_code() != ReturnCode.OK:
            return UNAVAILABLE
        return Response(reply["status"], reply["headers"], reply["body"])


class Controller(FlowerController):
    """The server's part. A site that falls silent is given up; the job goes on with the others."""

    def get_connector(self, fl_ctx: FLContext) -> ServerConnector:
        return ServerConnector(self.monitor_interval)

    def get_applet(self, fl_ctx: FLContext) -> ServerApplet:
        return ServerApplet(self.database, self.superlink_ready_timeout, run_config=self.run_config)

    def _check_job_status(self, fl_ctx: FLContext) -> bool:
        # FLARE's own ends the job as failed: whether a round survives a lost site is for the plan to say
        for site, status in self.client_statuses.items():
            silent = time.time() - status.last_op_time
            if not status.app_done and silent > self.max_client_op_interval:
                self.log_warning(fl_ctx, f"{site} is given up: silent for {silent:.0f} s")
                status.app_done = True
        return bool(super()._check_job_status(fl_ctx))


class Executor(FlowerExecutor):
    """A site's part."""

    def get_connector(self, fl_ctx: FLContext) -> ClientConnector:
        return ClientConnector(self.per_msg_timeout, self.tx_timeout)

    def get_applet(self, fl_ctx: FLContext) -> ClientApplet:
        return ClientApplet(extra_env=self.extra_env)
