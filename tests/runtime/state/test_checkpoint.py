"""State files, and state loaded into a session that has run."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from boost_compile.runtime.state.checkpoint import DamagedState, read_state_and_notes, write_state

import boost_compile as bc
from tests.networks import CASES, build, state_of
from tests.runtime.training.support import assert_same_state

SUFFIXES = [".safetensors", ".ckpt"]


def trained(exported, name: str = "lenet_bn_adam", steps: int = 2) -> bc.Session:
    session = bc.Session(bc.load(exported(name)))
    for batch in CASES[name].batches(steps):
        session.step(*batch)
    return session


@pytest.mark.parametrize("name", ["lenet_bn_adam", "mlp_half_weights"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_state_survives_a_file_bit_for_bit(exported, tmp_path, name, suffix):
    session = trained(exported, name)
    saved = session.state()
    session.save(tmp_path / f"x{suffix}")
    other = bc.Session(bc.load(exported(name)))
    assert set(other.load_state(tmp_path / f"x{suffix}")) == set(saved)
    assert_same_state(other.state(), saved)
    assert [f.name for f in tmp_path.iterdir()] == [f"x{suffix}"]


def test_npz_and_mappings_load(exported, tmp_path):
    session = trained(exported)
    np.savez(tmp_path / "x.npz", **session.state())
    for source in (tmp_path / "x.npz", str(tmp_path / "x.npz"), session.state(), session.cell.parameters_dict()):
        other = bc.Session(bc.load(exported("lenet_bn_adam")))
        other.load_state(source)
        assert_same_state(other.state(), session.state())


def test_loading_after_steps_takes_effect_for_every_role(exported):
    """A compiled graph must see the loaded value of each single state, whatever its role."""
    program = bc.load(exported("lenet_bn_adam"))
    batches = CASES["lenet_bn_adam"].batches(4)
    session = bc.Session(program)
    for batch in batches[:2]:
        session.step(*batch)
    middle = session.state()
    after = [session.step(*batch).loss for batch in batches[2:]]
    end = session.state()
    session.load_state(middle)
    assert_same_state(session.state(), middle)
    assert [session.step(*batch).loss for batch in batches[2:]] == after
    assert_same_state(session.state(), end)

    roles = {}
    for name, variable in program.state.items():
        if not (middle[name] == end[name]).all():
            roles.setdefault(variable.role, name)
    assert {"weight", "slot", "statistic"} <= roles.keys()
    for name in roles.values():
        session.load_state(middle)
        changed = middle[name] + 1
        session.load_state({name: changed}, strict=False)
        session.step(*batches[2])
        fresh = bc.Session(program)
        fresh.load_state({**middle, name: changed})
        fresh.step(*batches[2])
        assert_same_state(session.state(), fresh.state())


def test_native_checkpoints_load_both_ways(exported, tmp_path):
    case = CASES["lenet_bn"]
    batches = case.batches(3)
    native = build(case).train_step
    for batch in batches[:2]:
        native(*map(ms.Tensor, batch))
    ms.save_checkpoint(native, str(tmp_path / "native.ckpt"))
    session = bc.Session(bc.load(exported("lenet_bn")))
    session.load_state(tmp_path / "native.ckpt")
    assert_same_state(session.state(), state_of(native))
    loss = session.step(*batches[2]).loss
    assert loss == float(native(*map(ms.Tensor, batches[2])).asnumpy())

    session.save(tmp_path / "session.ckpt")
    fresh = build(case).train_step
    missing, unexpected = ms.load_param_into_net(fresh, ms.load_checkpoint(str(tmp_path / "session.ckpt")))
    assert (missing, unexpected) == ([], ["boost_compile.checksums"])
    assert_same_state(state_of(fresh), session.state())


def test_a_network_alone_loads_without_strict(exported, tmp_path):
    case = CASES["lenet_bn"]
    network = case.network()
    ms.save_checkpoint(network, str(tmp_path / "network.ckpt"))
    session = bc.Session(bc.load(exported("lenet_bn")))
    before = session.state()
    names = session.load_state(tmp_path / "network.ckpt", strict=False)
    assert set(names) == {p.name for p in network.get_parameters()}
    assert_same_state(session.state(), {**before, **state_of(network)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {**s, "hidden.wieght": s["hidden.weight"]}, "'hidden.wieght'.*did you mean 'hidden.weight'"),
        (lambda s: {k: v for k, v in s.items() if k != "hidden.bias"}, "lacks 1 of .* 'hidden.bias'"),
        (lambda s: {**s, "hidden.bias": s["hidden.bias"][:3]}, "'hidden.bias' is float32\\[16\\], .* shape \\[3\\]"),
        (lambda s: {**s, "hidden.bias": s["hidden.bias"].astype(np.float64)}, "'hidden.bias' .* float64"),
    ],
)
def test_a_state_that_does_not_fit_is_an_error_and_changes_nothing(exported, change, message):
    session = trained(exported, "mlp")
    before = session.state()
    with pytest.raises(bc.Error, match=message):
        session.load_state({name: value + 1 for name, value in change(before).items()})
    assert_same_state(session.state(), before)


@pytest.mark.parametrize("name", ["x.ckpt", "x.safetensors", "x.npz"])
def test_damaged_and_missing_files_are_errors(exported, tmp_path, name):
    session = bc.Session(bc.load(exported("mlp")))
    with pytest.raises(bc.Error, match=f"{name}.*no such file"):
        session.load_state(tmp_path / name)
    (tmp_path / name).write_bytes(b"\xff\xd8\xff\xe0 no state file" * 9)
    with pytest.raises(bc.Error, match=name):
        session.load_state(tmp_path / name)


def test_unknown_formats_and_bad_places_are_errors(exported, tmp_path):
    session = bc.Session(bc.load(exported("mlp")))
    with pytest.raises(bc.Error, match=r"\.safetensors, \.ckpt, \.npz"):
        session.load_state(tmp_path / "x.pt")
    with pytest.raises(bc.Error, match=r"\.safetensors or \.ckpt"):
        session.save(tmp_path / "x.pt")
    with pytest.raises(bc.Error, match="cannot be written"):
        session.save(tmp_path / "missing" / "x.ckpt")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_save_leaves_the_old_file(exported, tmp_path, monkeypatch, suffix):
    session = trained(exported, "mlp")
    path = tmp_path / f"x{suffix}"
    session.save(path)
    old = path.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(bc.Error, match="disk full"):
        session.save(path)
    assert path.read_bytes() == old
    assert [f.name for f in tmp_path.iterdir()] == [path.name]


def test_a_shape_that_is_not_the_one_written_is_damage(tmp_path):
    path = tmp_path / "x.safetensors"
    write_state(path, {}, {"count": np.ones(1, np.int32)})
    whole = path.read_bytes()
    assert b'"shape":[1]' in whole
    path.write_bytes(whole.replace(b'"shape":[1]', b'"shape":[ ]'))
    with pytest.raises(DamagedState, match="its contents are not those that were written"):
        read_state_and_notes(path)
