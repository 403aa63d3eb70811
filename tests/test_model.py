"""The encoder and the decoder: the laws they must obey."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import romae.model.blocks
from brute_force import norm
from messages import refused
from romae.model.autoencoder import Decoder, Encoder, Kinds
from romae.model.config import SIZES, ModelConfig, Size
from romae.tokens.ladder import Ladder
from romae.tokens.tokens import Tokens

SMALL = Size(width=24, heads=2, depth=2)
LENGTHS = [5, 1, 9, 9, 3]


def config(**changes) -> ModelConfig:
    base = ModelConfig(channels=2, position_dims=2, encoder=SMALL, decoder=Size(width=16, heads=2, depth=1))
    return replace(base, **changes)


def encoder(**changes) -> Encoder:
    torch.manual_seed(0)
    return Encoder(config(**changes)).eval()


@pytest.fixture
def tokens(generator) -> Tokens:
    values = [torch.randn(n, 2, generator=generator) for n in LENGTHS]
    return Tokens.pack(values, [10 * torch.rand(n, 2, generator=generator) for n in LENGTHS])


def moved(tokens: Tokens, shift: float) -> Tokens:
    return replace(tokens, positions=tokens.positions + shift)


def test_without_cls_a_shift_of_all_positions_changes_nothing(tokens):
    model = encoder(cls=False)
    assert_close(model(moved(tokens, 41.5)).values, model(tokens).values, rtol=1e-4, atol=1e-4)


def test_with_cls_a_shift_of_all_positions_changes_the_output(tokens):
    model = encoder(cls=True)
    assert (model(moved(tokens, 41.5)).values - model(tokens).values).abs().max() > 1e-3


def test_absolute_positions_notice_a_shift(tokens):
    model = encoder(cls=False, positions="absolute")
    assert (model(moved(tokens, 41.5)).values - model(tokens).values).abs().max() > 1e-3


@pytest.mark.parametrize("changes", [{}, {"cls": False}, {"positions": "absolute"}])
def test_permuting_a_samples_tokens_permutes_its_outputs(tokens, changes):
    model = encoder(cls=changes.pop("cls", True), **changes)
    n_cls = int(model.config.cls)
    order = torch.cat([torch.randperm(n) + sum(LENGTHS[:i]) for i, n in enumerate(LENGTHS)])
    shuffled = Tokens(tokens.values[order], tokens.positions[order], tokens.layout)
    before = torch.cat([x[n_cls:] for x in model(tokens).values.split([n + n_cls for n in LENGTHS])])
    after = torch.cat([x[n_cls:] for x in model(shuffled).values.split([n + n_cls for n in LENGTHS])])
    assert_close(after, before[order], rtol=1e-4, atol=1e-5)


def test_a_sample_does_not_depend_on_its_neighbours(tokens):
    model = encoder()
    together = model(tokens).values.split([n + 1 for n in LENGTHS])
    for sample, expected in zip(tokens.unpack(), together, strict=True):
        alone = model(Tokens.pack([sample.values], [sample.positions]))
        assert_close(alone.values, expected, rtol=1e-4, atol=1e-5)


def test_cls_stands_first_at_position_zero(tokens):
    output = encoder()(tokens)
    assert output.layout.lengths.tolist() == [n + 1 for n in LENGTHS]
    assert not output.positions[output.layout.offsets[:-1].long()].any()
    assert encoder(cls=False)(tokens).layout.lengths.tolist() == LENGTHS


@pytest.mark.parametrize(
    ("name", "millions"), [("tiny-shallow", 0.78), ("tiny", 4.67), ("small", 26.9), ("base", 74.7)]
)
def test_encoders_have_as_many_parameters_as_in_the_paper(name, millions):
    with torch.device("meta"):
        model = Encoder(ModelConfig(channels=1, position_dims=1, encoder=SIZES[name]))
    n = sum(p.numel() for p in model.transformer.parameters()) / 1e6
    assert n == pytest.approx(millions, rel=0.005)


def asked(*lengths: int, seed: int = 5) -> Tokens:
    generator = torch.Generator().manual_seed(seed)
    return Tokens.pack([torch.zeros(n, 2) for n in lengths], [torch.rand(n, 2, generator=generator) for n in lengths])


@pytest.mark.parametrize("positions", ["rope", "absolute"])
@pytest.mark.parametrize("kind", ["joint", "independent"])
def test_the_decoder_sees_queries_at_their_positions(tokens, kind, positions):
    encoded = encoder(positions=positions)(tokens)
    torch.manual_seed(0)
    decoder, queries = Decoder(config(queries=kind, positions=positions)).eval(), asked(2, 1, 1, 3, 2)
    output = decoder(encoded, queries.positions, queries.layout)
    assert output.shape == (9, 16)
    elsewhere = queries.positions.clone()
    elsewhere[0] += 1
    changed = (decoder(encoded, elsewhere, queries.layout) - output).abs().amax(-1) > 1e-6
    # Another query of the same sample notices only where queries are joint.
    assert changed.tolist() == [True, kind == "joint"] + [False] * 7
    # Where the encoded tokens stand matters as well.
    assert ((decoder(moved(encoded, 1.0), queries.positions, queries.layout) - output).abs().amax(-1) > 1e-6).all()


def test_independent_queries_do_not_depend_on_how_they_are_grouped(tokens):
    model = encoder()
    torch.manual_seed(0)
    decoder, queries = Decoder(config()).eval(), asked(4, 4, 4, 4, 4)
    together = decoder(model(tokens), queries.positions, queries.layout)
    for i in range(4):
        pick = torch.arange(20) % 4 == i
        one = queries.select(pick)
        assert_close(decoder(model(tokens), one.positions, one.layout), together[pick], rtol=1e-4, atol=1e-5)


def test_stochastic_depth_grows_over_the_layers_and_keeps_the_mean(tokens):
    model = Encoder(config(stochastic_depth=0.5, encoder=Size(width=24, heads=2, depth=4)))
    assert [float(block.rate) for block in model.transformer.blocks] == [0.125, 0.25, 0.375, 0.5]
    block, branch = model.transformer.blocks[-1].train(), torch.ones(tokens.layout.n_tokens, 1)
    torch.manual_seed(0)
    drawn = torch.stack([block._with_stochastic_depth(branch, tokens.layout) for _ in range(3000)])
    assert set(drawn.unique().tolist()) == {0.0, 2.0}
    assert (drawn.mean(0) - 1).abs().max() < 0.1
    whole_samples = drawn.squeeze(-1).split(LENGTHS, dim=1)
    assert all((sample == sample[:, :1]).all() for sample in whole_samples)
    assert torch.equal(block.eval()._with_stochastic_depth(branch, tokens.layout), branch)


def test_a_block_leaves_out_either_branch_of_a_sample(tokens):
    """With both branches kept half of the time, a sample leaves a block in one of four ways."""
    size = Size(width=24, heads=2, depth=1)
    block = encoder(stochastic_depth=0.5, encoder=size).transformer.blocks[0]
    x = torch.randn(sum(LENGTHS), 24, generator=torch.Generator().manual_seed(1))
    attended = x + 2 * block.attention(block.attention_norm(x), None, tokens.layout, None)
    ways = [x, attended, *(y + 2 * block.mlp(block.mlp_norm(y)) for y in (x, attended))]
    seen: list[set[int]] = [set() for _ in LENGTHS]
    block.train()
    torch.manual_seed(0)
    for _ in range(60):
        parts = zip(*(y.split(LENGTHS) for y in (block(x, None, tokens.layout), *ways)), strict=True)
        for sample, (output, *expected) in zip(seen, parts, strict=True):
            errors = [(output - y).abs().max().item() for y in expected]
            assert min(errors) < 1e-4
            sample.add(errors.index(min(errors)))
    assert seen == [{0, 1, 2, 3}] * len(LENGTHS)


@pytest.fixture
def of_kinds(tokens) -> Tokens:
    """Tokens of four kinds, numbered by their last position."""
    number = torch.arange(tokens.layout.n_tokens) % 4
    return replace(tokens, positions=torch.stack([tokens.positions[:, 0], number.float()], 1))


def test_each_kind_has_an_embedding_of_its_own(of_kinds):
    kinds, x = Kinds(4, 6, 0.1), torch.randn(of_kinds.layout.n_tokens, 6)
    embedded = replace(of_kinds, values=x)
    torch.nn.init.normal_(kinds.stretch.weight)
    number = of_kinds.positions[:, 1].long()
    expected = x * (1 + kinds.stretch.weight.T[number]) + kinds.shift.weight.T[number]
    assert_close(kinds(embedded).values, expected)


@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_kinds_begin_as_wide_as_they_are_told(spread):
    told = config(kinds=200, kinds_spread=spread)
    for kinds in (Encoder(told).kinds, Decoder(told).kinds):
        assert kinds.shift.weight.std().item() == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("changes", [{}, {"kinds": 5}], ids=["positions alone", "kinds"])
def test_the_number_of_a_kind_counts_by_itself_where_there_are_kinds(of_kinds, changes):
    """Rotations know how far apart two kinds are; which ones they are, only embeddings do."""
    model, before = encoder(cls=False, **changes), of_kinds.positions
    later, others = (replace(of_kinds, positions=before + torch.tensor(by)) for by in ([41.5, 0.0], [0.0, 1.0]))
    expected = model(of_kinds).values
    assert_close(model(later).values, expected, rtol=1e-4, atol=1e-4)
    assert ((model(others).values - expected).abs().max() > 0.1) == bool(changes)


def test_the_decoder_knows_the_kind_that_it_is_asked_for(of_kinds):
    """With keep=0 nothing is turned, so that positions tell nothing."""
    for changes, is_told in (({}, False), ({"kinds": 4}, True)):
        settings = config(keep=0.0, queries="independent", **changes)
        torch.manual_seed(0)
        model, decoder = Encoder(settings).eval(), Decoder(settings).eval()
        answers = decoder(model(of_kinds), of_kinds.positions, of_kinds.layout)
        first = answers[:5]  # of one sample; its kinds are 0, 1, 2, 3, 0
        assert_close(first[0], first[4])
        assert ((first[0] - first[1]).abs().max() > 1e-3) == is_told


@pytest.mark.parametrize("number", [4.0, -1.0, 0.5])
def test_a_kind_that_is_none_gets_a_sentence(of_kinds, number):
    wrong = replace(of_kinds, positions=of_kinds.positions.index_fill(0, torch.tensor([7]), number))
    with refused(ValueError, "sample 2", f"kind {number:g}", "kinds 0 to 3"):
        encoder(kinds=4)(wrong)


@pytest.mark.parametrize(
    ("settings", "is_random"),
    [
        ({"dropout": 0.3}, [True, True, True]),
        ({"dropout": 0.3, "attention_dropout": 0.0}, [False, False, True]),
        ({"dropout": 0.0, "attention_dropout": 0.3}, [True, True, False]),
    ],
    ids=["both", "feed-forward", "attention"],
)
def test_each_dropout_acts_on_its_own_branch(tokens, settings, is_random):
    block, queries = encoder(**settings).transformer.blocks[0], asked(2, 1, 1, 3, 2).layout
    x = torch.randn(sum(LENGTHS) + 9, 24, generator=torch.Generator().manual_seed(1))
    branches = (
        lambda: block.attention(x[:-9], None, tokens.layout, None),
        lambda: block.attention(x, None, tokens.layout, queries)[-9:],
        lambda: block.mlp(x),
    )
    for training in (True, False):
        block.train(training)
        assert [not torch.equal(branch(), branch()) for branch in branches] == [training and one for one in is_random]


def test_dropout_acts_in_training_alone(tokens):
    model = encoder(dropout=0.3)
    assert torch.equal(model(tokens).values, encoder()(tokens).values)
    model.train()
    assert not torch.equal(model(tokens).values, model(tokens).values)
    assert config(dropout=0.3).score_dropout == 0.3
    assert config(dropout=0.3, attention_dropout=0.0).score_dropout == 0.0


def test_checkpointing_changes_memory_and_nothing_else(tokens):
    plain, saving = encoder(dropout=0.2).train(), encoder(dropout=0.2, checkpointing=True).train()
    for model in (plain, saving):
        torch.manual_seed(7)
        model(tokens).values.square().sum().backward()
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_checkpointing_goes_through_every_block_in_training(tokens, monkeypatch):
    called, checkpoint = [], romae.model.blocks.checkpoint
    monkeypatch.setattr(
        romae.model.blocks,
        "checkpoint",
        lambda block, *rest, **kw: called.append(block) or checkpoint(block, *rest, **kw),
    )
    for checkpointing in (False, True):
        model = encoder(checkpointing=checkpointing)
        model(tokens)
        assert not called
        model.train()(tokens)
        assert called == (list(model.transformer.blocks) if checkpointing else [])


@pytest.mark.parametrize("make", [Encoder, Decoder])
def test_norms_of_blocks_use_the_models_eps(make):
    x = torch.randn(4, 24, generator=torch.Generator().manual_seed(1))
    for block in make(config(norm_eps=0.5, decoder=SMALL)).transformer.blocks:
        for layer in (block.attention_norm, block.mlp_norm):
            assert_close(layer(x), norm(x, layer.weight, 0.5))


@pytest.mark.parametrize("make", [Encoder, Decoder])
@pytest.mark.parametrize("depth", [2, 12])
def test_weights_start_at_the_scale_that_keeps_variances(make, depth):
    size = Size(width=96, heads=2, depth=depth)
    torch.manual_seed(0)
    model = make(config(encoder=size, decoder=size))
    for block in model.transformer.blocks:
        for layer, gain in (
            (block.qkv, 1),
            (block.up, 1),
            (block.out, (2 * depth) ** -0.5),
            (block.down, (2 * depth) ** -0.5),
        ):
            scale = gain * layer.in_features**-0.5
            assert layer.weight.std().item() == pytest.approx(scale, rel=0.04)
            assert abs(layer.weight.mean().item()) < 0.06 * scale
    assert not model.projection.bias.any()
    if make is Decoder:
        assert model.projection.weight.std().item() == pytest.approx(96**-0.5, rel=0.04)


def test_a_deep_stack_keeps_the_scale_of_its_input(generator):
    tokens = Tokens.pack([torch.zeros(40, 2)] * 4, [10 * torch.rand(40, 2, generator=generator) for _ in range(4)])
    stack = encoder(encoder=Size(width=96, heads=4, depth=12)).transformer
    x = torch.randn(160, 96, generator=generator)
    output = stack.run(x, tokens.positions, tokens.layout)
    assert 0.8 < output.std() / x.std() < 1.3
    assert (output - x).std() > 0.2


def test_rebuilding_hands_over_every_weight(tokens):
    model = encoder().double()
    rebuilt = model.rebuilt(dropout=0.2, stochastic_depth=0.1)
    assert rebuilt.config.dropout == 0.2 and rebuilt.projection.weight.dtype == torch.float64
    for (name, one), (_, other) in zip(model.state_dict().items(), rebuilt.state_dict().items(), strict=True):
        assert torch.equal(one, other), name
    assert_close(rebuilt.eval()(tokens.to(dtype=torch.float64)).values, model(tokens.to(dtype=torch.float64)).values)
    assert model.train().rebuilt().training and not model.eval().rebuilt().training
    with refused(ValueError, "cls", "build a new Encoder"):
        model.rebuilt(cls=False)


def test_copies_and_casts_behave(tokens):
    model = encoder()
    again = copy.deepcopy(model)
    assert torch.equal(again(tokens).values, model(tokens).values)
    again.load_state_dict({k: torch.zeros_like(v) for k, v in again.state_dict().items()})
    assert not again(tokens).values.any() and model(tokens).values.any()
    exact = encoder().double()(tokens.to(dtype=torch.float64)).values
    assert exact.dtype == torch.float64
    assert_close(model(tokens).values, exact.float(), rtol=1e-4, atol=1e-5)
    half = encoder().bfloat16()(tokens.to(dtype=torch.bfloat16)).values
    assert half.dtype == torch.bfloat16 and (half.double() - exact).norm() / exact.norm() < 0.05


def test_autocast_agrees_with_full_precision(tokens):
    model = encoder()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(tokens).values
    exact = model(tokens).values
    assert (half - exact).norm() / exact.norm() < 0.05


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (
            lambda: Size(width=100, heads=3, depth=1),
            ["width 100", "3 heads", "99 and 102"],
        ),
        (lambda: Size(width=0, heads=1, depth=1), ["width", "at least 1"]),
        (lambda: config(position_dims=5), ["2 heads", "20 and 40"]),
        (lambda: Decoder(config(position_dims=3)), ["decoder's head size 8", "2 x 3"]),
        (lambda: config(channels=0), ["at least one channel"]),
        (lambda: config(kinds=3, kinds_spread=0.0), ["kinds_spread", "above 0", "not 0.0"]),
        (lambda: config(kinds=3, kinds_spread=float("inf")), ["kinds_spread", "above 0", "not inf"]),
        (lambda: config(kinds=0), ["kinds", "how many"]),
        (lambda: encoder().rebuilt(kinds=3), ["['kinds']", "kinds.stretch.weight"]),
        (lambda: config(dropout=1.0), ["dropout", "at least 0", "below 1"]),
        (lambda: config(keep=2.0), ["between 0 and 1"]),
        (lambda: config(ladders=(Ladder(),)), ["1 ladders", "2 position dimensions"]),
    ],
)
def test_models_that_cannot_be_get_a_sentence(make, parts):
    with refused(ValueError, *parts):
        make()


def test_tokens_that_do_not_fit_get_a_sentence():
    with refused(ValueError, "2 channels", "have 3"):
        encoder()(Tokens.pack([torch.zeros(2, 3)], [torch.zeros(2, 2)]))
    with refused(ValueError, "2 position dimensions", "have 1"):
        encoder()(Tokens.pack([torch.zeros(2, 2)], [torch.zeros(2, 1)]))
