"""One of two processes that train a model together: python replicas.py FOLDER RANK."""

import sys

import torch
import torch.distributed as dist
from small_models import NanoGPT, tokens
from torch.nn import functional

import attnlab


def train(folder, rank, live):
    model = torch.nn.parallel.DistributedDataParallel(NanoGPT())
    options = {"live": True} if live else {"probe": tokens(2)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with attnlab.observe(model, every=2, min_keys=8, **options) as observer:
        for n in range(3):
            ids = tokens(2, seed=10 * rank + n)
            loss = functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if rank == 0:
        torch.save(observer.result().entropy.values, f"{folder}/entropy-{live}")
        torch.save(observer.history.steps, f"{folder}/steps-{live}")
    else:
        assert not observer.history.steps


def train_sharded(folder, rank):
    """Each process holds a part of the weights: FSDP2."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    losses = {}
    for observed in (False, True):
        model = NanoGPT()
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        observer = attnlab.observe(model, every=2, min_keys=8, probe=tokens(2))
        losses[observed] = []
        for n in range(3):
            if observed:
                observer.step(n)
            ids = tokens(2, seed=10 * rank + n)
            loss = functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[observed].append(loss.item())
    assert losses[True] == losses[False]
    if rank == 0:
        result = observer.result()
        torch.save(result.entropy.values, f"{folder}/entropy-sharded")
        behind = {name: result[name].values for name in ("qk_stable_rank", "mlp_stable_rank")}
        torch.save(behind, f"{folder}/behind-sharded")
    else:
        assert not observer.history.steps


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, rank = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    for live in (False, True):
        train(folder, rank, live)
    train_sharded(folder, rank)
    dist.destroy_process_group()
