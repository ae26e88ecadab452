"""The agreement hash: known answers, what it must and must not notice, and the kernel equal to the CPU's to the bit."""

import numpy as np
import pytest
import torch

from ..common.errors import ArgumentError
from ..common.testing import generator
from . import ops, reference


def inputs(rows, width=6, seed=0, device="cpu"):
    rng = generator(seed)
    big = lambda: torch.from_numpy(rng.integers(-(2**62), 2**62, rows))  # noqa: E731
    small = lambda *shape: torch.from_numpy(rng.integers(0, 130000, shape).astype(np.int32))  # noqa: E731
    accept = torch.from_numpy(rng.integers(0, width + 1, rows).astype(np.int32))
    v = (big(), small(rows), small(rows, width), accept, small(rows), big())
    return [t.to(device) for t in v]


def after(v, device="cpu"):
    state = ops.new_state(device)
    torch.ops.b300kit.agree(*v, state)
    return state.cpu().numpy()


def test_splitmix64_known_answers():
    # The generator of Steele, Lea and Flood seeded with 1234567: its outputs are mix of seed + i*gamma.
    gamma, seed = 0x9E3779B97F4A7C15, 1234567
    found = [int(reference.mix(np.asarray([(seed + i * gamma) % 2**64], np.uint64))[0]) for i in range(3)]
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_operator_is_well_formed_on_cpu():
    torch.library.opcheck(torch.ops.b300kit.agree.default, (*inputs(3), ops.new_state("cpu")))


def test_the_order_of_rows_does_not_matter_and_every_field_does():
    v = inputs(5)
    base = after(v)
    order = torch.tensor([3, 0, 4, 2, 1])
    assert (after([t[order].contiguous() for t in v]) == base).all()
    v[3][:] = 4
    base = after(v)
    for index in range(6):
        changed = [t.clone() for t in v]
        changed[index][2] += 1
        assert after(changed)[0] != base[0], f"argument {index}"
    past = [t.clone() for t in v]
    past[2][2, 4] += 1  # past the accept length: no rank has to agree on it
    assert (after(past) == base).all()


def test_swapped_values_between_rows_and_fields_are_seen():
    v = inputs(2)
    v[3][:] = 2
    swapped = [t.clone() for t in v]
    swapped[2][0, 0], swapped[2][1, 0] = v[2][1, 0], v[2][0, 0]
    assert after(swapped)[0] != after(v)[0]
    swapped = [t.clone() for t in v]
    swapped[2][0, 0], swapped[2][0, 1] = v[2][0, 1], v[2][0, 0]
    assert after(swapped)[0] != after(v)[0]


def test_the_chain_keeps_a_difference_and_the_history_finds_its_step():
    mine, other = ops.new_state("cpu"), ops.new_state("cpu")
    for step in range(1, 101):
        v = inputs(4, seed=step)
        torch.ops.b300kit.agree(*v, mine)
        if step == 60:
            v[2] = v[2] + 1
            v[3] = v[3].clamp(min=1)
        torch.ops.b300kit.agree(*v, other)
    a, b = (t.numpy().view(np.uint64) for t in (mine, other))
    assert a[0] != b[0] and reference.first_difference(a, b) == 60
    assert reference.first_difference(a, a) is None
    with pytest.raises(ValueError, match="different steps: 100 and 99"):
        b[1] = 99
        reference.first_difference(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [1, 6, 64])
@pytest.mark.parametrize("rows", [0, 1, 7, 64, 129, 1024])
def test_equal_to_the_cpu(gpu, rows, width):
    state, want = ops.new_state(gpu), ops.new_state("cpu")
    for step in range(70 if rows == 7 else 3):
        v = inputs(rows, width, seed=step)
        torch.ops.b300kit.agree(*v, want)
        torch.ops.b300kit.agree(*(t.to(gpu) for t in v), state)
    assert torch.equal(state.cpu(), want)


@pytest.mark.gpu
def test_a_graph_advances_it(gpu):
    v = inputs(8, device=gpu)
    state, want = ops.new_state(gpu), ops.new_state("cpu")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ops.run(*v, state)
        stream.synchronize()
        state.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(10):
                ops.run(*v, state)
        for _ in range(1000):
            graph.replay()
        torch.cuda.synchronize()
    u64 = lambda t: t.cpu().numpy().view(np.uint64)  # noqa: E731
    step = reference.step_hash(u64(v[0]), *(t.cpu().numpy() for t in v[1:5]), u64(v[5]))
    expected = u64(want)
    for _ in range(10000):
        expected = reference.advance(expected, step)
    assert (u64(state) == expected).all()


@pytest.mark.gpu
def test_bad_arguments_are_named(gpu):
    v = inputs(2, device=gpu)
    with pytest.raises(ArgumentError, match=r"'positions'.*dtype torch.int32"):
        ops.run(v[0], v[1].long(), *v[2:], ops.new_state(gpu))
    with pytest.raises(ArgumentError, match=r"'ids'.*1 to 64"):
        ops.run(*v[:2], v[2][:, :0], *v[3:], ops.new_state(gpu))
