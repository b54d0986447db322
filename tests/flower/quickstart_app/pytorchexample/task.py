"""A model, and images that are dark or bright: each node makes its own."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 2)

    def forward(self, x):
        return self.layer(x.flatten(1))


class Images(Dataset):
    """Records are mappings, as in the data sets that the quickstart downloads."""

    def __init__(self, seed, count):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 2, (count,), generator=generator)
        noise = torch.rand(count, 1, 4, 4, generator=generator)
        self.images = noise / 2 + self.labels.view(-1, 1, 1, 1) / 2

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        return {"img": self.images[place], "label": int(self.labels[place])}


def load_data(partition_id, num_partitions, batch_size):
    """Loaders of the node's own training and test images."""
    train_set, test_set = Images(partition_id, 64), Images(partition_id + num_partitions, 16)
    return DataLoader(train_set, batch_size=batch_size, shuffle=True), DataLoader(test_set, batch_size=16)


def train(net, trainloader, epochs, lr):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for _ in range(epochs):
        for batch in trainloader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(batch["img"]), batch["label"])
            loss.backward()
            optimizer.step()
    return loss.item()


def test(net, testloader):
    with torch.no_grad():
        right = [net(batch["img"]).argmax(1) == batch["label"] for batch in testloader]
    return torch.cat(right).float().mean().item()
