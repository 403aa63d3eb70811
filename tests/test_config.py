"""Configurations: strict at the border, the same after a round trip."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest

from messages import refused
from romae.config import DEEPEST, from_dict, load_config, override, parameters, parsed_json, to_dict
from romae.model.config import SIZES, ModelConfig, Size
from romae.tokens.ladder import Ladder
from romae.tokens.masking import Future, Mixed, Rows, Strategy, UniformTokens
from romae.training.tables import PretrainConfig


@dataclass(frozen=True, kw_only=True)
class Example:
    epochs: int
    lr: float = 1e-3
    clip: float | None = 1.0
    mode: Literal["fast", "slow"] = "fast"
    masking: Strategy = UniformTokens()
    betas: tuple[float, float] = (0.9, 0.95)
    model: ModelConfig = ModelConfig(channels=1, position_dims=1)
    shares: dict[str, float] = field(default_factory=dict)


EXAMPLE = Example(
    epochs=3,
    clip=None,
    masking=Rows(ratio=0.25),
    model=ModelConfig(channels=2, position_dims=2, encoder=SIZES["small"], ladders=(Ladder(), Ladder(scale=3))),
)


def test_a_configuration_survives_json():
    assert from_dict(Example, json.loads(json.dumps(to_dict(EXAMPLE)))) == EXAMPLE


def test_files_are_read_by_their_ending(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(to_dict(EXAMPLE)))
    (tmp_path / "a.toml").write_text('epochs = 2\nmode = "slow"\n[model]\nchannels = 1\nposition_dims = 2\n')
    assert load_config(Example, tmp_path / "a.json") == EXAMPLE
    assert load_config(Example, tmp_path / "a.toml").model.position_dims == 2


def test_settings_are_addressed_by_their_path():
    changed = override(
        EXAMPLE,
        "epochs=6",
        "lr=.5",
        "clip=none",
        "mode=slow",
        "model.cls=false",
        "model.encoder.width=72",
        "betas=[0.8, 1]",
    )
    assert (changed.epochs, changed.lr, changed.clip, changed.mode, changed.model.cls) == (6, 0.5, None, "slow", False)
    assert changed.model.encoder == Size(width=72, heads=6, depth=12)
    assert changed.betas == (0.8, 1.0)
    assert EXAMPLE.epochs == 3
    assert override(EXAMPLE, "lr=1e-4").lr == 1e-4


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: from_dict(Example, {"epochs": 1, "learning_rate": 1}), ["'learning_rate'", "Example has"]),
        (lambda: from_dict(Example, {}), ["lacks ['epochs']"]),
        (lambda: from_dict(Example, {"epochs": "3"}), ["epochs", "be int", "not '3'"]),
        (lambda: from_dict(Example, {"epochs": True}), ["epochs", "be int", "not True"]),
        (lambda: from_dict(Example, {"epochs": 1, "mode": "medium"}), ["mode", "one of"]),
        (lambda: from_dict(Example, {"epochs": 1, "betas": [1.0]}), ["betas", "2 entries"]),
        (lambda: from_dict(Example, {"epochs": 1, "model": {"channels": 1, "dims": 2}}), ["unknown key 'model.dims'"]),
        (lambda: from_dict(Example, {"epochs": 1, "shares": 3}), ["shares", "table", "not 3"]),
        (lambda: from_dict(Example, {"epochs": 1, "shares": {"a": 1, "b": True}}), ["shares.b", "float", "not True"]),
        (lambda: from_dict(Example, {"epochs": 1, "shares": {"a": None}}), ["shares.a", "float", "not None"]),
        (lambda: from_dict(Example, {"epochs": 1, "model": 3}), ["model", "ModelConfig", "not 3"]),
        (
            lambda: from_dict(Example, {"epochs": 1, "masking": {"kind": "nothing"}}),
            ["masking", "kind, one of"],
        ),
        (lambda: from_dict(Example, {"epochs": 1, "masking": {"ratio": 0.5}}), ["masking", "kind"]),
        (lambda: from_dict(Example, {"epochs": 1, "masking": {"kind": "rows", "ratio": 1.5}}), ["share of rows"]),
        (lambda: ModelConfig(channels=1, position_dims=1, encoder=3), ["encoder", "Size", "not 3"]),
        (lambda: ModelConfig(channels=2.5, position_dims=1), ["channels", "be int", "not 2.5"]),
        (lambda: ModelConfig(channels=1, position_dims=1, cls="no"), ["cls", "bool", "not 'no'"]),
        (lambda: ModelConfig(channels=1, position_dims=1, norm_eps=-1.0), ["norm_eps", "above 0"]),
        (lambda: Size(width=8.0, heads=1, depth=1), ["width", "be int", "not 8.0"]),
        (lambda: Ladder(wavelengths=(float("nan"),)), ["wavelengths", "above 0"]),
        (lambda: override(EXAMPLE, "epochs"), ["key=value"]),
        (lambda: override(EXAMPLE, "model.widht=3"), ["unknown key 'model.widht'"]),
        (lambda: override(EXAMPLE, "epochs.x=3"), ["'epochs'", "single value"]),
        (lambda: override(EXAMPLE, "epochs=1.5"), ["epochs", "be int"]),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_what_is_not_understood_is_refused(make, parts):
    with refused((ValueError, TypeError), *parts):
        make()


def test_settings_are_read_together():
    changed = override(EXAMPLE, "model.encoder.width=64", "model.encoder.heads=4")  # 64 would not go with 6 heads
    assert changed.model.encoder == Size(width=64, heads=4, depth=12)


@dataclass(frozen=True, kw_only=True)
class Lists:
    one: tuple[int] = (1,)
    two: tuple[int, float] = (1, 2.0)
    any_number: tuple[int, ...] = ()


def test_a_list_has_as_many_entries_as_its_type_says():
    assert from_dict(Lists, {"one": [3], "two": [3, 4], "any_number": [3, 4, 5]}) == Lists(
        one=(3,), two=(3, 4.0), any_number=(3, 4, 5)
    )
    for name, value, n in (("one", [3, 4], "1 entries, not 2"), ("two", [3], "2 entries, not 1")):
        with refused(ValueError, name, n):
            from_dict(Lists, {name: value})


@pytest.mark.usefixtures("without_shape_checks")
def test_numbers_of_numpy_become_pythons():
    config = ModelConfig(
        channels=np.int64(2), position_dims=1, dropout=np.float32(0.5), ladders=[Ladder(scale=np.float64(2))]
    )
    assert type(config.channels) is int and type(config.dropout) is float and isinstance(config.ladders, tuple)
    assert from_dict(ModelConfig, json.loads(json.dumps(to_dict(config)))) == config


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "broken.toml").write_text("epochs = = 1")
    with refused(ValueError, "broken.toml", "valid TOML"):
        load_config(Example, tmp_path / "broken.toml")
    with refused(ValueError, "cannot read", "absent.json"):
        load_config(Example, tmp_path / "absent.json")
    (tmp_path / "stars.csv").write_text("star,day,flux\n1,2,3\n")
    with refused(ValueError, ".toml", ".json", "stars.csv"):
        load_config(Example, tmp_path / "stars.csv")


@dataclass(frozen=True, kw_only=True)
class Scaled:
    values: Literal["none", "standard"] = "standard"
    origin: float | Literal["none", "first"] = "first"
    unit: float | None = 1.0


def test_none_is_no_value_or_the_word_as_the_setting_has_it():
    assert override(Scaled(), "values=none", "origin=none", "unit=none") == Scaled(
        values="none", origin="none", unit=None
    )
    with refused(TypeError, "epochs", "be int", "not None"):
        override(EXAMPLE, "epochs=none")


def test_a_file_of_settings_is_read_in_utf_8(tmp_path, monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Named:
        id: str

    monkeypatch.setattr("io.text_encoding", lambda encoding, *_: encoding or "ascii")
    path = tmp_path / "job.toml"
    path.write_bytes('id = "étoile"'.encode())
    assert load_config(Named, path).id == "étoile"


def test_a_size_is_given_by_its_name():
    named = ModelConfig(channels=1, position_dims=1, encoder="small", decoder="tiny")
    assert (named.encoder, named.decoder) == (SIZES["small"], SIZES["tiny"])
    assert from_dict(ModelConfig, {"channels": 1, "position_dims": 1, "encoder": "small", "decoder": "tiny"}) == named
    assert override(named, "encoder=base").encoder == SIZES["base"]
    with pytest.raises(ValueError) as caught:
        ModelConfig(channels=1, position_dims=1, encoder="tinny")
    assert all(part in str(caught.value) for part in ("'tinny'", "did you mean 'tiny'", "'base'", "romae.Size("))


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        (f"epochs={2**64}", ["epochs", "20 digits"]),
        (f"epochs=-{'9' * 400}", ["epochs", "400 digits"]),
        (f"lr={'9' * 400}", ["lr", "400 digits"]),
    ],
)
def test_numbers_that_nothing_can_hold_are_refused(setting, parts):
    with refused(ValueError, *parts):
        override(EXAMPLE, setting)


def test_large_numbers_are_read_as_they_are():
    assert override(EXAMPLE, f"epochs={2**64 - 1}", "lr=100000000000000000000.0").epochs == 2**64 - 1


@pytest.mark.parametrize("name", ["a.json", "a.toml"])
def test_settings_nested_without_end_are_refused(tmp_path, name):
    text = "[" * 10**5 + "]" * 10**5
    (tmp_path / name).write_text(text if name == "a.json" else f"epochs = {text}")
    with refused(ValueError, name, "not valid"):
        load_config(Example, tmp_path / name)


@pytest.mark.parametrize(("depth", "is_read"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_json_is_read_to_a_depth(depth, is_read):
    text = '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1)
    if is_read:
        assert parsed_json(text) == json.loads(text)
    else:
        with refused(ValueError, f"more than {DEEPEST}"):
            parsed_json(text)


def test_what_a_class_takes_includes_what_it_hands_on():
    class Base:
        def __init__(self, first: int, *, second: float = 2.0): ...

    class Derived(Base):
        def __init__(self, third, **settings): ...

    taken = parameters(Derived)
    assert list(taken) == ["third", "first", "second"]
    assert (taken["first"].annotation, taken["third"].annotation) == (int, Any)


def test_a_kind_that_is_no_word_is_refused():
    with refused(ValueError, "masking", "kind", "not ['rows']"):
        from_dict(PretrainConfig, {"masking": {"kind": ["rows"]}})


def test_messages_show_the_beginning_of_what_is_long(without_shape_checks):
    with pytest.raises(TypeError) as caught:
        from_dict(ModelConfig, ["a" * 10_000])
    assert "aaa" in str(caught.value) and len(str(caught.value)) < 500


def test_another_kind_takes_its_own_settings_alone():
    config = override(
        PretrainConfig(),
        "masking.kind=mixed",
        'masking.parts=[[{kind="tokens", ratio=0.5}, 1], [{kind="future", share=[0.3, 0.9]}, 2]]',
    )
    assert config.masking == Mixed(((UniformTokens(ratio=0.5), 1.0), (Future(share=(0.3, 0.9)), 2.0)))
    assert override(config, "masking.kind=future", "masking.after=3").masking == Future(after=3.0)
