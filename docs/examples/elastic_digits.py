"""Trains a small network on scikit-learn's handwritten digits, as an elastic job.

python -m mirage.elastic.runtime.local --folder F --workers 2 --servers 2 -- elastic_digits.py
"""

import argparse

import torch
from sklearn.datasets import load_digits

from mirage.elastic.runtime.trainer import Elastic

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=float, default=20)
parser.add_argument("--batch-size", type=int, default=96)
parser.add_argument("--optimizer", choices=["sgd", "adam"], default="adam")
given = parser.parse_args()

images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
data = torch.utils.data.TensorDataset(images.float() / 16, labels)
train, test = data[:1500], data[1500:]

torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(128, 10)
)
if given.optimizer == "adam":
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

# What makes it elastic: this object, and its `step` in place of backward() and optimizer.step().
elastic = Elastic(
    model,
    optimizer,
    torch.utils.data.TensorDataset(*train),
    batch_size=given.batch_size,
    epochs=given.epochs,
)


def loss(model: torch.nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


while elastic.running:
    step = elastic.step(loss)
    if step is not None and (step.number + 1) % elastic.job.epoch_steps == 0:
        print(f"epoch {step.epoch + 1}: loss {step.loss:.4f}", flush=True)

if elastic.end == "finished":
    model.eval()
    correct = (model(test[0]).argmax(dim=1) == test[1]).float().mean()
    print(f"test accuracy {correct:.3f}", flush=True)
