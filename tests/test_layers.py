"""Every layer is called as a module: hooks, adapters and quantisation reach it, and alignment changes no result."""

import copy
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import brute_force
from romae.model import blocks
from romae.model.autoencoder import Encoder
from romae.model.config import ModelConfig, Size
from romae.model.kernels.aligned import AlignedLinear, AlignedNorm, Groups, wide, wide_group, without_alignment
from romae.model.tasks import MaskedReconstruction
from romae.tokens.layout import Layout
from romae.tokens.masking import UniformTokens
from romae.tokens.sample import Sample
from romae.tokens.tokens import Batch, Tokens, collate

LENGTHS = [7, 3, 12, 12, 1]
# No size of the encoder is a multiple of 8; of the decoder the width is, and the heads are not.
CONFIG = ModelConfig(
    channels=2,
    position_dims=2,
    encoder=Size(width=36, heads=3, depth=2, feed_forward=50),
    decoder=Size(width=24, heads=2, depth=1),
)
SETTINGS = {
    "independent queries": {},
    "joint queries": {"queries": "joint"},
    "absolute positions": {"positions": "absolute", "cls": False},
    "a window": {"queries": "joint", "window": 4},
    "kinds": {"kinds": 3},
}


def task_of(**changes) -> MaskedReconstruction:
    torch.manual_seed(0)
    return MaskedReconstruction(replace(CONFIG, **changes), masking=UniformTokens(ratio=0.5))


def tokens_of(lengths: list[int]) -> Tokens:
    generator = torch.Generator().manual_seed(0)
    positions = [torch.stack([torch.rand(n, generator=generator) * 9, torch.arange(n) % 3.0], 1) for n in lengths]
    return Tokens.pack([torch.randn(n, 2, generator=generator) for n in lengths], positions)


def batch_for(task: MaskedReconstruction) -> Batch:
    samples = [Sample(part.values, part.positions) for part in tokens_of(LENGTHS).unpack()]
    return task.prepare(collate(samples), torch.Generator().manual_seed(1))


def loss_and_gradients(task: MaskedReconstruction) -> list[Tensor]:
    task.zero_grad()
    loss = task(batch_for(task)).total
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in task.parameters() if p.grad is not None)]


def align(monkeypatch, is_aligned: bool = True) -> None:
    """Stacks are aligned as on a GPU in half precision, here in the precision that they are in."""
    monkeypatch.setattr(blocks, "is_half_on_gpu", lambda x: is_aligned)


@pytest.mark.parametrize("is_aligned", [False, True], ids=["plain", "aligned"])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_forward_hook_fires_once_on_every_linear_and_every_norm(name, is_aligned, monkeypatch):
    align(monkeypatch, is_aligned)
    task, calls = task_of(**SETTINGS[name]), Counter()
    layers = {name: x for name, x in task.named_modules() if isinstance(x, nn.Linear | nn.RMSNorm)}
    for layer_name, layer in layers.items():
        layer.register_forward_hook(lambda *_, name=layer_name: calls.update([name]))
    # Three blocks of four linears and two norms, two projections, and the head; kinds have two linears on either side.
    assert len(layers) == 3 * 6 + 2 + 2 + (4 if name == "kinds" else 0)
    task(batch_for(task))
    assert calls == dict.fromkeys(layers, 1)


class LoRA(nn.Module):
    """A linear layer with a term of low rank: x W' + x A' B'."""

    def __init__(self, inner: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.a, self.b = nn.Linear(inner.in_features, rank, bias=False), nn.Linear(rank, inner.out_features, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.b(self.a(x))


def adapt(model: nn.Module, wanted: str = "") -> list[LoRA]:
    """Put an adapter around every linear layer whose name has this in it."""
    adapters = []
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear) and wanted in name:
            parent, _, attribute = name.rpartition(".")
            adapters.append(LoRA(layer))
            setattr(model.get_submodule(parent), attribute, adapters[-1])
    return adapters


@pytest.mark.parametrize("is_aligned", [False, True], ids=["plain", "aligned"])
def test_lora_changes_nothing_until_it_is_trained_and_every_layer_of_it_is_trained(is_aligned, monkeypatch):
    align(monkeypatch, is_aligned)
    task = task_of()
    batch = batch_for(task)
    before = task(batch).total
    adapters = adapt(task)
    assert len(adapters) == 3 * 4 + 2 + 1
    # Adapters take what a layer takes, not channels of zeros, so that a stack with one of them is not aligned.
    assert_close(task(batch).total, before, rtol=1e-5, atol=0)
    for step in (1, 2):  # while B is zero, A has no gradient
        optimiser = torch.optim.SGD([p for x in adapters for p in (x.a.weight, x.b.weight)], lr=0.01)
        optimiser.zero_grad()
        task(batch).total.backward()
        for adapter in adapters:
            assert adapter.inner.weight.grad is None and adapter.b.weight.grad.any()
            assert bool(adapter.a.weight.grad.any()) == (step == 2)
        optimiser.step()
    assert task(batch).total < before


@pytest.mark.cuda
def test_on_a_gpu_in_half_precision_adapters_change_nothing_until_they_are_trained():
    task = task_of(encoder=Size(width=120, heads=2, depth=2)).cuda()  # a width of 15 times 8, with heads of 60
    batch, losses = batch_for(task).to("cuda"), []
    for prepare in (lambda: None, lambda: adapt(task)):
        prepare()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            losses.append(task.cuda()(batch).total)
    losses[1].backward()
    assert_close(losses[1], losses[0], rtol=3e-2, atol=0)
    assert all(x.b.weight.grad.any() for x in task.modules() if isinstance(x, LoRA))


@pytest.mark.parametrize("wanted", ["blocks.1.up", "blocks.0.qkv"])
def test_one_layer_of_others_takes_its_whole_stack_out_of_alignment_and_no_other(wanted, monkeypatch):
    align(monkeypatch)
    task, widths = task_of(), {}
    adapt(task.encoder, wanted)
    for name, stack in (("encoder", task.encoder), ("decoder", task.decoder)):
        outputs = widths.setdefault(name, [])
        for block in stack.transformer.blocks:
            block.out.register_forward_hook(lambda _, inputs, __, outputs=outputs: outputs.append(inputs[0].shape[1]))
    task(batch_for(task))
    assert widths == {"encoder": [36, 36], "decoder": [32]}  # heads of 12, and two of 16


@pytest.mark.parametrize("name", SETTINGS)
def test_aligned_and_plain_stacks_have_the_same_loss_and_gradients(name, monkeypatch):
    task = task_of(**SETTINGS[name]).double()
    plain = loss_and_gradients(task)
    align(monkeypatch)
    assert_close(loss_and_gradients(task), plain)


def as_the_authors_name_them(encoder: Encoder) -> dict[str, Tensor]:
    weights = {"projection.weight": encoder.projection.weight, "projection.bias": encoder.projection.bias}
    for layer, block in enumerate(encoder.transformer.blocks):
        wq, wk, wv = block.qkv.weight.chunk(3)
        names = {"attention.wq": wq, "attention.wk": wk, "attention.wv": wv, "attention.wo": block.out.weight}
        names |= {"feed_forward.w1": block.up.weight, "feed_forward.w2": block.down.weight}
        names |= {"attention_norm": block.attention_norm.weight, "ffn_norm": block.mlp_norm.weight}
        weights |= {f"encoder.layers.{layer}.{name}.weight": weight for name, weight in names.items()}
    return weights | {"cls": encoder.cls}


def test_an_aligned_encoder_equals_the_brute_force_in_outputs_and_gradients(monkeypatch):
    align(monkeypatch)
    torch.manual_seed(0)
    encoder, tokens = Encoder(CONFIG).double(), tokens_of(LENGTHS).to(dtype=torch.float64)
    weights, heads, eps = as_the_authors_name_them(encoder), CONFIG.encoder.heads, CONFIG.norm_eps
    samples = [(part.values.double(), part.positions.double()) for part in tokens.unpack()]
    truth = torch.cat([brute_force.encode(*sample, weights, heads, CONFIG.keep, eps)[0] for sample in samples])
    output = encoder(tokens).values
    assert_close(output, truth, rtol=1e-5, atol=1e-5)  # angles are in single precision
    gradients = (torch.autograd.grad(x.square().sum(), list(encoder.parameters())) for x in (output, truth))
    assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_tiny_computes_192_wide_with_heads_of_64():
    assert (wide(180), wide(192), wide(200), wide(720)) == (192, 192, 200, 720)
    # Heads of 60 channels without rotation, and on one, two and three axes; every axis has two groups.
    assert [n_groups * wide_group(60 // n_groups, n_groups) for n_groups in (1, 2, 4, 6)] == [64, 64, 64, 72]


def test_weights_are_padded_group_by_group():
    layer = AlignedLinear(Groups.whole(3), Groups.of_heads(2, 6, 2))
    assert layer.target == (4, 3, 4) and layer.source == (1, 3, 64)
    x = torch.randn(5, 3)
    output = layer(F.pad(x, (0, 61)), is_aligned=True)
    assert output.shape == (5, 16)
    groups = output.unflatten(-1, (4, 4))
    assert not groups[..., 3].any()
    assert_close(groups[..., :3].flatten(-2), layer(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_norm_passes_over_channels_of_zeros_and_keeps_the_precision_of_its_input(dtype):
    norm, x = AlignedNorm(36, 0.5).to(torch.float64), torch.randn(5, 36, dtype=torch.float64)
    nn.init.normal_(norm.weight)
    for wider in (36, 64):
        output = norm(F.pad(x, (0, wider - 36)).to(dtype))
        assert output.dtype == dtype and not output[:, 36:].any()
        tolerance = {"rtol": 0, "atol": 0.1} if dtype == torch.bfloat16 else {}
        assert_close(output[:, :36].double(), brute_force.norm(x, norm.weight, 0.5), **tolerance)


def test_ours_are_linears_and_norms_to_those_who_look_for_them():
    """Names, shapes and first values of weights are those of plain layers."""
    torch.manual_seed(0)
    ours = nn.ModuleDict({"linear": AlignedLinear(Groups.whole(36), Groups.whole(50)), "norm": AlignedNorm(36, 1e-6)})
    torch.manual_seed(0)
    plain = nn.ModuleDict({"linear": nn.Linear(36, 50, bias=False), "norm": nn.RMSNorm(36, eps=1e-6)})
    assert_close(ours.state_dict(), plain.state_dict(), rtol=0, atol=0)
    x = torch.randn(4, 36)
    assert torch.equal(ours["linear"](ours["norm"](x)), plain["linear"](plain["norm"](x)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.ao moves to a package of its own
def test_dynamic_quantisation_reaches_every_linear_and_stays_near(monkeypatch):
    from torch.ao.nn.quantized.dynamic import Linear as QuantisedLinear
    from torch.ao.quantization import quantize_dynamic

    if "qnnpack" in torch.backends.quantized.supported_engines:  # the default of some builds is for other machines
        monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")
    task = task_of().eval()
    plain = without_alignment(copy.deepcopy(task))
    expected, batch = task(batch_for(task)).total, batch_for(task)
    assert torch.equal(plain(batch).total, expected)
    quantised = quantize_dynamic(plain, {nn.Linear})
    assert sum(isinstance(layer, QuantisedLinear) for layer in quantised.modules()) == 3 * 4 + 2 + 1
    loss = quantised(batch).total
    assert loss != expected and abs(loss - expected) / expected < 0.02


class Executed(TorchDispatchMode):
    """Counts the operators that run below it."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func] += 1
        return func(*args, **kwargs or {})


def test_a_checkpointed_block_repeats_norms_and_activations_and_nothing_that_it_is_to_keep(generator):
    block = blocks.Block(CONFIG.encoder, CONFIG, 0.0)
    x, layout = torch.randn(10, 36, generator=generator, requires_grad=True), Layout.of([5, 5])
    rotation = blocks.AxialRope(12, 2)(torch.rand(10, 2, generator=generator))
    executed = {}
    for name in ("plain", "checkpointed"):
        with Executed() as forward:
            if name == "plain":
                y = block(x, rotation, layout)
            else:
                settings = {"use_reentrant": False, "context_fn": blocks._checkpoint_contexts}
                y = checkpoint(block._forward, x, rotation, layout, None, False, **settings)
        with Executed() as backward:
            y.square().sum().backward()
        executed[name] = forward.counts, backward.counts
    kept = set(blocks.kept_operators())
    aten = torch.ops.aten
    assert {aten.mm.default, aten.stack.default, aten._scaled_dot_product_flash_attention_for_cpu.default} == {
        operator for operator in executed["plain"][0] if operator in kept
    }
    repeated = executed["checkpointed"][1] - executed["plain"][1]
    assert aten.silu.default in repeated and not kept & set(repeated)


def in_groups(x: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Channels with zeros behind each group of them."""
    return F.pad(x.unflatten(-1, (groups.n, groups.size)), (0, groups.wide - groups.size)).flatten(-2)


GROUPS = [Groups(1, 3, 8), Groups(2, 3, 4), Groups(1, 8, 8), Groups(3, 4, 4)]


@pytest.mark.parametrize("source", GROUPS, ids=str)
@pytest.mark.parametrize("target", GROUPS, ids=str)
def test_an_aligned_layer_is_the_plain_one_with_zeros_behind_each_group(source, target):
    torch.manual_seed(0)
    layer = AlignedLinear(source, target)
    x = torch.randn(5, source.n * source.size)
    assert_close(layer(in_groups(x, source), is_aligned=True), in_groups(layer(x), target))
