#!/usr/bin/env python3
"""torch's own judgement of libtandem_ops.so.

    operators.py LIBRARY ANSWER

Saves to ANSWER, by name: `opcheck ...`, 1 for each check of torch.library.opcheck that succeeds; `gradcheck ...`, 1 for
each success of torch.autograd.gradcheck; `off ...`, the largest difference from torch's formulation of an operator's
value or gradient; `autocast ...`, the largest difference of a call under autocast from the same call without autocast,
or from torch's formulation (`near torch`). Prints `NAME: TYPE: MESSAGE` of each wrong call.
"""
import itertools
import sys

try:
    import torch
except ImportError as error:
    print(error)
    sys.exit(77)
import torch.nn.functional as F
from torch.library import opcheck

torch.ops.load_library(sys.argv[1])
ops = torch.ops.tandem
answer = {}
MARGINS = {"no margin": (16.0,), "cosface": (64.0, 1.0, 0.0, 0.35), "arcface": (64.0, 1.0, 0.5, 0.0),
           "combined": (30.0, 1.1, 0.2, 0.1)}


def drawn(*shape, seed=0, grad=True, layout=torch.contiguous_format, dtype=torch.float64):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
    return x.contiguous(memory_format=layout).requires_grad_(grad)


def largest_difference(ours, theirs):
    return max((a - b).abs().max() / b.abs().max().clamp_min(1) for a, b in zip(ours, theirs, strict=True)).detach()


def compare(name, ours, theirs, inputs, compiled=True):
    """Value, gradients, and what a call writes, as `ours` and `theirs` return them: (result, *written)."""
    def run(function):
        leaves = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        result, *written = function(*leaves)
        weights = drawn(*result.shape, seed=99, grad=False)
        grads = torch.autograd.grad((result * weights).sum(), [x for x in leaves if x.requires_grad])
        return [result, *written, *grads]
    expected = run(theirs)
    answer[f"off {name}"] = largest_difference(run(ours), expected)
    if compiled:
        torch.compiler.reset()
        traced = torch.compile(ours, backend="aot_eager", fullgraph=True)
        answer[f"off {name}, compiled"] = largest_difference(run(traced), expected)


def check(name, operator, *arguments):
    for test, outcome in opcheck(operator, arguments, raise_exception=False).items():
        if outcome != "SUCCESS":
            print(f"opcheck {name} {test}: {outcome!r}")
        answer[f"opcheck {name} {test}"] = torch.tensor(float(outcome == "SUCCESS"))


def check_swish():
    for name, x in {"dense": drawn(3, 5), "strided": drawn(4, 6)[:, ::2].detach().requires_grad_(),
                    "float32": drawn(7, dtype=torch.float32), "bfloat16": drawn(7, dtype=torch.bfloat16)}.items():
        check(f"swish {name}", ops.swish.default, x)
    compare("swish", lambda x: [ops.swish(x)], lambda x: [F.silu(x)], [drawn(301, 7)])
    x, by = drawn(9, seed=1), drawn(9, seed=2)

    def twice(function):
        first, = torch.autograd.grad(function(x), x, by, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), [x, by])
    answer["off swish, twice"] = largest_difference(twice(ops.swish), twice(F.silu))


def torch_abn(x, weight, bias, mean, variance, activation, training):
    y = F.batch_norm(x, mean, variance, weight, bias, training, 0.1, 1e-5)
    act = {"leaky_relu": lambda v: F.leaky_relu(v, 0.01), "elu": F.elu, "swish": F.silu, "identity": lambda v: v}
    return act[activation](y)


def abn_inputs(shape, layout=torch.contiguous_format):
    channels = shape[1]
    weight = drawn(channels, seed=2, grad=False)
    return [drawn(*shape, seed=1, layout=layout), (weight + 0.2 * weight.sign()).requires_grad_(),
            drawn(channels, seed=3), drawn(channels, seed=4, grad=False),
            drawn(channels, seed=5, grad=False).abs() + 0.1]


def check_abn():
    shapes = {"rows": ((7, 5), torch.contiguous_format), "images": ((3, 4, 5, 2), torch.contiguous_format),
              "channels last": ((2, 18, 3, 3), torch.channels_last)}
    for (name, shape), activation, training in itertools.product(
            shapes.items(), ("leaky_relu", "elu", "swish", "identity"), (True, False)):
        name = f"abn {name} {activation} {'training' if training else 'testing'}"

        def call(x, *state, of=ops.abn):
            mean, variance = state[2].clone(), state[3].clone()
            return of(x, *state[:2], mean, variance, activation, training), mean, variance
        compare(name, call, lambda *given: call(*given, of=torch_abn), abn_inputs(*shape),
                compiled=activation in ("leaky_relu", "swish"))
        if training and activation != "elu" or activation == "swish":
            check(name, ops.abn.default, *abn_inputs(*shape), activation, training)
    x, *state = abn_inputs((5, 18, 3, 3))
    check("abn bfloat16", ops.abn.default, x.bfloat16().detach().requires_grad_(), *(s.float() for s in state))


def torch_margin_softmax(x, weight, targets, scale, factor=1.0, angle=0.0, cosine=0.0):
    cosines = F.normalize(x) @ F.normalize(weight).T
    rows = targets >= 0
    own = cosines[rows, targets[rows]]
    scores = cosines.index_put((rows.nonzero().squeeze(1), targets[rows]),
                               torch.cos(factor * torch.acos(own) + angle) - cosine)
    return F.cross_entropy(scale * scores, targets, ignore_index=-1)


def check_margin_softmax():
    targets = torch.tensor([0, 10, 3, -1, 3, 7])
    x, weight = drawn(6, 8, seed=1), drawn(11, 8, seed=2)
    for name, margin in MARGINS.items():
        compare(name, lambda x, w: [ops.margin_softmax(x, w, targets, *margin)],
                lambda x, w: [torch_margin_softmax(x, w, targets, *margin)], [x, weight])
        check(name, ops.margin_softmax.default, x, weight, targets, *margin)


def largest_in_autocast(low, function, leaves):
    """Result and gradients of a call under autocast, whose first input is an activation in the low type."""
    leaves = [x.detach().clone().requires_grad_(x.requires_grad) for x in leaves]
    with torch.autocast("cpu", dtype=low):
        result = function(leaves[0] @ torch.eye(leaves[0].shape[1]), *leaves[1:])
    grads = torch.autograd.grad(result.float().square().sum(), [x for x in leaves if x.requires_grad])
    return [result, *grads]


def check_autocast():
    """Types as torch's formulation has them, values as a call without autocast on the same numbers gives them."""
    targets = torch.tensor([0, 10, 3, -1, 3, 7])
    x, weight, bias, mean, variance = [values.float().detach() for values in abn_inputs((6, 5))]
    state = [weight.requires_grad_(), bias.requires_grad_(), mean, variance]
    features, classes = drawn(6, 8, seed=1, dtype=torch.float32), drawn(11, 8, seed=2, dtype=torch.float32)
    margin = MARGINS["cosface"]
    for low in (torch.bfloat16, torch.float16):
        def abn(x, weight, bias, mean, variance, of=ops.abn, activation="leaky_relu"):
            return of(x, weight, bias, mean.clone(), variance.clone(), activation, True)

        def explicit_abn(x, *others, **more):
            with torch.autocast("cpu", enabled=False):
                return abn(x if low == torch.bfloat16 else x.float(), *others, **more)

        def explicit_loss(x, w):
            with torch.autocast("cpu", enabled=False):
                return ops.margin_softmax(x.float(), w, targets, *margin)
        calls = {
            "abn": (abn, explicit_abn, lambda *given: abn(*given, of=torch_abn), [x.requires_grad_(), *state]),
            "abn swish": (lambda *given: abn(*given, activation="swish"),
                          lambda *given: explicit_abn(*given, activation="swish"), None, [x, *state]),
            "margin softmax": (lambda x, w: ops.margin_softmax(x, w, targets, *margin), explicit_loss,
                               lambda x, w: torch_margin_softmax(x, w, targets, *margin), [features, classes]),
            "margin softmax, weight too": (lambda x, w: ops.margin_softmax(x, w.to(low), targets, *margin),
                                           lambda x, w: explicit_loss(x, w.to(low).float()), None,
                                           [features, classes])}
        for name, (ours, explicit, theirs, leaves) in calls.items():
            name = f"{name} {str(low)[6:]}"
            got = largest_in_autocast(low, ours, leaves)
            answer[f"autocast {name}"] = largest_difference(got, largest_in_autocast(low, explicit, leaves))
            if theirs:
                wanted = largest_in_autocast(low, theirs, leaves)
                answer[f"autocast near torch {name}"] = largest_difference(got, wanted)
            if theirs and low == torch.bfloat16:
                types = [[t.dtype for t in tensors] for tensors in (got, wanted)]
                answer[f"autocast types {name}"] = torch.tensor(float(types[0] != types[1]))
                torch.compiler.reset()
                traced = torch.compile(ours, backend="aot_eager", fullgraph=True)
                answer[f"autocast {name}, compiled"] = largest_difference(largest_in_autocast(low, traced, leaves), got)
    expect_error("abn autocast statistics",
                 lambda: largest_in_autocast(torch.bfloat16, lambda x: ops.abn(x, weight, bias, mean.half(), variance),
                                             [x]))


def check_gradients():
    """Every kernel's gradient in float64 against differences of its values."""
    def judge(name, function, *inputs, by=torch.autograd.gradcheck):
        passed = by(function, inputs, atol=1e-7, rtol=1e-6, raise_exception=False)
        answer[f"gradcheck {name}"] = torch.tensor(float(passed))
    x = drawn(5, 7, seed=1)
    judge("swish", ops.swish, x)
    judge("swish, twice", ops.swish, x, by=torch.autograd.gradgradcheck)
    for activation, training, (name, shape, layout) in itertools.product(
            ("leaky_relu", "elu", "swish", "identity"), (True, False),
            (("rows", (7, 5), torch.contiguous_format), ("channels last", (2, 9, 3, 2), torch.channels_last))):
        x, weight, bias, *buffers = abn_inputs(shape, layout)

        def call(x, weight, bias):
            return ops.abn(x, weight, bias, *(b.clone() for b in buffers), activation, training)
        judge(f"abn {name} {activation} {'training' if training else 'testing'}", call, x, weight, bias)
    targets = torch.tensor([0, 10, 3, -1, 3, 7])
    for name, margin in MARGINS.items():
        judge(f"margin softmax {name}", lambda x, w: ops.margin_softmax(x, w, targets, *margin), drawn(6, 8, seed=1),
              drawn(11, 8, seed=2))
    judge("a wrong gradient", SlightlyWrong.apply, x)


class SlightlyWrong(torch.autograd.Function):
    """A gradient that is wrong in the fifth digit, which the tolerances here have to find."""
    @staticmethod
    def forward(ctx, x):
        return x * 1.00001

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def expect_error(name, call):
    try:
        call()
        print(f"{name}: nothing was raised")
    except Exception as error:  # whatever it is, the test reads it
        print(f"{name}: {type(error).__name__}: {error}")


def check_errors():
    x, weight, bias, mean, variance = abn_inputs((4, 3))
    state = [weight, bias, mean, variance]
    expect_error("abn activation", lambda: ops.abn(x, *state, "relu"))
    expect_error("abn dims", lambda: ops.abn(drawn(4, 3, 2), *state))
    expect_error("abn type", lambda: ops.abn(x.half(), *state))
    expect_error("abn size", lambda: ops.abn(x, drawn(2), *state[1:]))
    expect_error("abn parameter's type", lambda: ops.abn(x, weight.float(), *state[1:]))
    expect_error("abn layout", lambda: ops.abn(x, drawn(6)[::2], *state[1:]))
    expect_error("abn rows", lambda: ops.abn(x[:1], *state))
    expect_error("abn buffer", lambda: ops.abn(x, weight, bias, drawn(3), variance))
    expect_error("abn twice", lambda: torch.autograd.grad(ops.abn(x, *state).sum(), x, create_graph=True))
    features, classes, targets = drawn(2, 4), drawn(3, 4), torch.tensor([0, 2])
    expect_error("loss id", lambda: ops.margin_softmax(features, classes, torch.tensor([0, 3])))
    expect_error("loss shape", lambda: ops.margin_softmax(features, drawn(3, 5), targets))
    expect_error("loss type", lambda: ops.margin_softmax(features.half(), classes.half(), targets))
    expect_error("loss targets", lambda: ops.margin_softmax(features, classes, targets.int()))
    expect_error("loss scale", lambda: ops.margin_softmax(features, classes, targets, -1.0))
    expect_error("loss twice", lambda: torch.autograd.grad(ops.margin_softmax(features, classes, targets), features,
                                                           create_graph=True))
    expect_error("swish type", lambda: ops.swish(torch.arange(3)))
    for name, call, x in (("swish", ops.swish, drawn(3, grad=False)), ("abn", lambda x: ops.abn(x, *state), x.detach()),
                          ("loss", lambda x: ops.margin_softmax(x, classes, targets), features.detach())):
        expect_error(f"{name} forward", lambda: torch.func.jvp(call, (x,), (x,)))
    expect_error("swish transform", lambda: torch.func.grad(lambda x: ops.swish(x).sum())(drawn(3)))


def allocated_bytes(function, x):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        y = function(x * 1.0)
        (y * 2.0).backward(torch.ones_like(y))
    x.grad = None
    return sum(max(0, event.self_cpu_memory_usage) for event in profile.key_averages())


def check_memory():
    """What autograd keeps: swish its input, abn its result. How much less swish allocates than silu, in backward."""
    x = drawn(100, 10)
    less = allocated_bytes(F.silu, x) - allocated_bytes(ops.swish, x)
    answer["saved in swish's backward"] = torch.tensor(less / x.nbytes)
    kept = []

    def note(t):
        kept.append(t)
        return t
    x = drawn(64, 32)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        y = ops.abn(x, *abn_inputs((64, 32))[1:])
    answer["kept abn"] = torch.tensor([t.data_ptr() == y.data_ptr() for t in kept if 16 * t.nbytes > y.nbytes])
    kept.clear()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        ops.swish(x)
    answer["kept swish"] = torch.tensor([t.data_ptr() == x.data_ptr() for t in kept])


torch.set_num_threads(1)
for part in (check_swish, check_abn, check_margin_softmax, check_autocast, check_gradients, check_errors, check_memory):
    part()
torch.save(answer, sys.argv[2])
