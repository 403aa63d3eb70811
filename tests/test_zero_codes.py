"""Codes of channels: what each may see, and the series that they are compared on."""

import json

import numpy as np
import pytest
import torch

import romae
from messages import assert_says
from romae.experiments import zero_codes
from romae.experiments.zero_codes import CODES, FEWEST, Triples, model_of
from romae.model.config import Size
from romae.tokens.layout import Layout

SIZE = Size(width=24, heads=1, depth=3)


def reconstructed(task, batch, asked):
    layout = Layout.of([len(asked)])
    with torch.no_grad():
        return task.eval().reconstruct(batch.tokens, asked, layout)


def series(values, channels):
    columns = np.stack([values, np.zeros(len(values))], 1).astype(np.float32)
    positions = np.stack([np.arange(len(values), dtype=float), np.asarray(channels, dtype=float)], 1)
    return romae.collate([romae.Sample(columns, positions)])


@pytest.mark.parametrize("code", CODES)
def test_another_channel_counts_and_a_channel_knows_its_own(code):
    task = model_of(code, SIZE)
    asked = torch.tensor([[2.5, 10.0]])
    first = reconstructed(task, series([1.0, -1.0, 0.5, 2.0], [10, 70, 10, 70]), asked)
    assert not torch.allclose(first, reconstructed(task, series([1.0, 3.0, 0.5, 2.0], [10, 70, 10, 70]), asked))
    assert not torch.allclose(first, reconstructed(task, series([1.0, -1.0, 0.5, 2.0], [70, 10, 70, 10]), asked))


def test_layers_within_channels_do_not_see_other_channels():
    task = model_of("axes", SIZE)
    for part in (task.encoder, task.decoder):
        for block in part.transformer.blocks[1::2]:
            torch.nn.init.zeros_(block.out.weight)
    asked = torch.tensor([[2.5, 10.0]])
    one = reconstructed(task, series([1.0, -1.0, 0.5, 2.0], [10, 70, 10, 70]), asked)
    other = reconstructed(task, series([1.0, 3.0, 0.5, -5.0], [10, 70, 10, 70]), asked)
    alone = reconstructed(task, series([1.0, 9.0, 0.5, 9.0], [10, 70, 10, 70]), asked)
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(one, alone)
    assert not torch.allclose(one, reconstructed(task, series([2.0, -1.0, 0.5, 2.0], [10, 70, 10, 70]), asked))


def test_a_layer_within_one_channel_is_plain_attention():
    plain, within = model_of("coordinate", SIZE), model_of("axes", SIZE)
    within.load_state_dict(plain.state_dict())
    asked = torch.tensor([[0.5, 10.0], [2.5, 10.0]])
    batch = series([1.0, -1.0, 0.5, 2.0], [10, 10, 10, 10])
    torch.testing.assert_close(reconstructed(plain, batch, asked), reconstructed(within, batch, asked))


def test_the_third_channel_follows_from_the_others_or_is_a_stranger():
    triples = Triples(400, 0)
    left = []
    for i in range(400):
        n = int(triples.n_rows[i])
        rows = triples.values[i, :n].double().numpy()
        design = np.column_stack([np.ones(n), rows[:, :2]])
        fit, *_ = np.linalg.lstsq(design, rows[:, 2], rcond=None)
        left.append(np.var(rows[:, 2] - design @ fit) / np.var(rows[:, 2]))
    left = np.array(left)
    assert np.median(left[~triples.is_stranger.numpy()]) < 0.1 < 0.3 < np.median(left[triples.is_stranger.numpy()])


def test_the_question_shows_both_others_of_its_rows():
    triples = Triples(40, 0)
    found = [question for i in range(40) if (question := triples.question(i)) is not None]
    assert len(found) > 20
    for whole, alone, places, truth in found:
        assert (alone.positions[:, 1] == 2).all() and (~alone.hidden).sum() >= FEWEST
        for (when, _), value in zip(places, truth, strict=True):
            row = whole.positions[:, 0] == when
            assert whole.hidden[row].tolist() == [False, False, True]
            assert whole.values[row, 0][2].item() == pytest.approx(value)


def test_the_command_adds_a_code_and_leaves_others(tmp_path, capsys):
    path = tmp_path / "codes.json"
    zero_codes.main(["--out", str(path), "--quick", "--code", "coordinate"])
    before = json.loads(path.read_text())
    assert before["trial"]["epochs"] == zero_codes.QUICK.epochs
    zero_codes.main(["--out", str(path), "--quick", "--code", "coordinate", "--code", "axes"])
    table = json.loads(path.read_text())["codes"]
    assert set(table) == {"coordinate", "axes"} and table["coordinate"] == before["codes"]["coordinate"]
    for row in table.values():
        assert row["follows, ratio"] == pytest.approx(row["follows, together"] / row["follows, alone"])


def test_another_trial_is_not_mixed_with_the_one_in_the_file(tmp_path, capsys):
    path = tmp_path / "codes.json"
    path.write_text(json.dumps({"trial": {"epochs": 99}, "codes": {}}))
    with pytest.raises(SystemExit) as stopped:
        zero_codes.main(["--out", str(path), "--quick"])
    assert stopped.value.code == 2
    assert_says(capsys.readouterr().err, "other settings", "codes.json")
