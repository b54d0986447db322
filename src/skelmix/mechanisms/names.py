"""The names of the registered mechanisms, for those who offer a choice before any of them is loaded."""

DISTRIBUTED = ("smm", "dgm", "skellam", "ddg", "cpsgd")
EVERY = (*DISTRIBUTED, "gaussian")
