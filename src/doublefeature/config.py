"""What the model is (`Priors`), how a sweep goes (`Moves`), how a run goes (`Schedule`), over shards (`Sharding`).

Frozen, checked where they are made, and turned into plain dictionaries and back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from doublefeature.checks import check_count, check_flag, check_number, check_positive
from doublefeature.errors import SettingsError

LEARNABLE = (
    "mass",
    "item_rate",
    "effect_sd",
    "item_offset_sd",
    "user_offset_sd",
    "grade_sd",
    "user_scale_sd",
    "user_grade_sd",
    "remainder_sd",
)


_SWEEPS, _SWEEPS_ON_FEW, _FEW_RATINGS = 480, 960, 75_000
"""How many sweeps a chain has unless told, and on how few ratings it has more (docs/defaults.md)."""
MERGES = ("precision", "draws", "paper")
"""How item offsets of shards can be merged (see `Sharding`)."""
SECOND_STAGES = ("refresh", "paper")
"""What can follow the merge."""

_POSITIVE = (
    "mass", "mass_shape", "item_rate_weight", "noise_shape", "noise_rate", "effect_sd", "item_offset_sd",
    "user_offset_sd", "grade_sd", "user_grade_sd", "user_scale_sd", "choice_sd", "trait_offset_sd", "remainder_sd",
)  # fmt: skip
_NEEDS = {
    "item_offset_sd": "item_offsets",
    "user_offset_sd": "user_offsets",
    "grade_sd": "graded",
    "user_scale_sd": "user_scales",
    "user_grade_sd": "user_grades",
}
"""What must be part of the model for a hyperparameter to have a meaning."""


class _Settings:
    """Shared by all settings classes: plain dictionaries in and out, unknown keys refused."""

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, ready for JSON."""
        plain = asdict(self)  # type: ignore[call-overload]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from plain values; an unknown key is an error, never ignored."""
        known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        for key in values:
            if key not in known:
                raise SettingsError(
                    f"unknown key {key!r} in {cls.__name__.lower()}. Known keys: {', '.join(sorted(known))}."
                )
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


@dataclass(frozen=True)
class Priors(_Settings):
    """The model and its priors; the defaults are section 3 of the paper.

    A value that is learnt (named in `learn`) is the centre of its own prior; one that is not stays fixed.
    """

    mass: float = 3.0
    """λ: how many features to expect, λ (1 + 1/2 + … + 1/users). Learnt: Gamma with this mean."""
    item_rate: float = 0.2
    """p: probability that an item belongs to a feature. Learnt: Beta with this mean."""
    effect_sd: float = 2.0
    """σ_θ: standard deviation of a feature's effect on the score scale, where levels are one apart."""
    item_offsets: bool = True
    """Whether items have an offset ρ of their own."""
    item_offset_sd: float = 1.0
    """σ_ρ: spread of item offsets."""
    user_offsets: bool = False
    """Whether users have an offset α of their own (beyond the paper)."""
    user_offset_sd: float = 0.5
    """σ_α: spread of user offsets."""
    noise_shape: float = 5.0
    """Shape of the inverse gamma prior of τ²."""
    noise_rate: float = 1.0
    """Scale of the inverse gamma prior of τ²; the prior mean of τ² is scale / (shape − 1)."""
    noise_scale: float | None = None
    """A fixed τ. None: τ is sampled."""
    base: float | None = None
    """b0, the score of a pair with no offsets and no features. None: half the number of levels."""
    learn: tuple[str, ...] = ()
    """Which of the hyperparameters are sampled (see `LEARNABLE`)."""
    item_rate_by_feature: bool = False
    """Every feature has its own p_k ~ Beta in place of one p for all."""
    mass_shape: float = 2.0
    """How firmly a learnt mass is held near its centre (shape of its Gamma prior)."""
    item_rate_weight: float = 5.0
    """How firmly a learnt rate is held near its centre (pseudo-items of its Beta prior)."""
    sd_shape: float = 3.0
    """How firmly learnt standard deviations are held near their centres (inverse gamma shape)."""
    item_prior: str = "bernoulli"
    """`bernoulli`: items belong to a feature independently; `ibp`: the Indian buffet process given the number of
    features, the paper's symmetric variant, in which every feature has at least one item."""
    graded: bool = False
    """Every item of a feature has an effect of its own around the feature's (beyond the paper)."""
    grade_sd: float = 0.4
    """σ_w: spread of the items' effects around their feature's."""
    user_grades: bool = False
    """Every user of a graded feature holds it more or less strongly, a multiple of its effects (beyond the paper)."""
    user_grade_sd: float = 0.5
    """σ_s: spread of these multiples around 1."""
    user_scales: bool = False
    """Every user has a noise scale of their own, a multiple of τ (beyond the paper)."""
    user_scale_sd: float = 0.3
    """σ_v: spread of the logarithms of these multiples around 0."""
    choices: int = 0
    """Which items users chose to rate tells about them: up to so many components of it shift memberships and user
    offsets (beyond the paper; needs graded features and user offsets, and a mass that is not learnt)."""
    choice_sd: float = 0.3
    """σ_c: spread of these shifts of the log odds of belonging."""
    trait_offset_sd: float = 0.3
    """Spread of how far a component of choices, or a column of covariates, shifts the offsets of users and items."""
    choice_least: float = 0.0
    """A component counts if it is so many times as large as chance would make it; above 1 none does where everybody
    rated nearly everything."""
    item_choices: bool = False
    """Who chose to rate an item tells about it too: as many components shift items' memberships and offsets."""
    free_cutpoints: bool = False
    """Inner cutpoints between the first and the last are sampled, uniform in order (beyond the paper)."""
    remainder: int = 0
    """Rank of a normal remainder u_u · v_i beside the features (beyond the paper). It can predict a little better where
    there are many ratings, and takes from features what they would say: they are then hard to read."""
    remainder_sd: float = 0.3
    """σ_r: spread of the remainder's factors, of users and of items."""
    widen_from: int | None = None
    """Spreads of effects, offsets and noise suit scales of up to so many levels; on wider ones they grow in proportion
    (`on_scale`). None: they are as they are given on every scale."""
    effect_values: tuple[float, ...] = ()
    """When given, effects can take only these values, each equally likely, in place of the normal prior."""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            check_positive(name, getattr(self, name))
        check_number("item_rate", self.item_rate)
        if not 0.0 < self.item_rate < 1.0:
            raise SettingsError(f"item_rate must lie strictly between 0 and 1, got {self.item_rate!r}.")
        check_number("sd_shape", self.sd_shape)
        if self.sd_shape <= 1.0:
            raise SettingsError(f"sd_shape must be above 1, got {self.sd_shape!r}.")
        if self.noise_scale is not None:
            check_positive("noise_scale", self.noise_scale)
        if self.base is not None:
            check_number("base", self.base)
        check_number("choice_least", self.choice_least)
        for name in ("item_rate_by_feature", "item_choices", "free_cutpoints", *_NEEDS.values()):
            check_flag(name, getattr(self, name))
        self._check_learn()
        self._check_effect_values()
        if self.item_prior not in ("bernoulli", "ibp"):
            raise SettingsError(f"item_prior must be 'bernoulli' or 'ibp', got {self.item_prior!r}.")
        if self.item_prior == "ibp" and (self.item_rate_by_feature or self.item_choices or "item_rate" in self.learn):
            raise SettingsError("item_prior='ibp' has no item rate: leave out item_choices and learning item_rate.")
        check_count("choices", self.choices, least=0)
        if self.widen_from is not None:
            check_count("widen_from", self.widen_from, least=2)
        check_count("remainder", self.remainder, least=0)
        if "remainder_sd" in self.learn and not self.remainder:
            raise SettingsError("learning remainder_sd needs a remainder of rank 1 or more.")
        if self.user_grades and not self.graded:
            raise SettingsError("user_grades need graded=True.")
        if self.choices and not (self.graded and self.user_offsets):
            raise SettingsError("choices need graded=True and user_offsets=True.")
        if self.item_choices and not (self.choices and self.item_offsets):
            raise SettingsError("item_choices need choices above 0 and item_offsets=True.")
        if self.item_choices and (self.item_rate_by_feature or "item_rate" in self.learn):
            raise SettingsError("with item_choices every feature has log odds of its own: do not learn item_rate.")
        if self.choices and "mass" in self.learn:
            raise SettingsError("with choices the mass cannot be learnt: leave it out of learn.")

    def _check_learn(self) -> None:
        if isinstance(self.learn, str):
            raise SettingsError(f"learn must be a list of names, got {self.learn!r}. Write [{self.learn!r}].")
        object.__setattr__(self, "learn", tuple(self.learn))
        for name in self.learn:
            if name not in LEARNABLE:
                raise SettingsError(f"cannot learn {name!r}. Choose among {', '.join(LEARNABLE)}.")
        for name, needed in _NEEDS.items():
            if name in self.learn and not getattr(self, needed):
                raise SettingsError(f"learning {name} needs {needed}=True.")
        if "item_rate" in self.learn and self.item_rate_by_feature:
            raise SettingsError("learn item_rate or set item_rate_by_feature, not both.")

    def _check_effect_values(self) -> None:
        object.__setattr__(self, "effect_values", tuple(self.effect_values))
        for value in self.effect_values:
            check_number("effect_values", value)
        if len(set(self.effect_values)) != len(self.effect_values) or len(self.effect_values) == 1:
            raise SettingsError("effect_values needs at least two values, all different, or none.")
        if self.effect_values and "effect_sd" in self.learn:
            raise SettingsError("effect_sd has no meaning beside effect_values: do not learn it.")
        if self.effect_values and self.graded:
            raise SettingsError(
                "effects around a feature's own need a normal prior: graded or effect_values, not both."
            )

    def on_scale(self, n_levels: int) -> Priors:
        """Return the priors for a scale of so many levels, which is one unit of score for each."""
        if self.widen_from is None:
            return self
        wider = max(1.0, n_levels / self.widen_from)
        spreads = ("effect_sd", "item_offset_sd", "user_offset_sd", "trait_offset_sd", "grade_sd", "remainder_sd")
        return replace(
            self,
            widen_from=None,
            noise_rate=self.noise_rate * wider**2,
            **{name: getattr(self, name) * wider for name in spreads},
        )

    def with_everything_learnt(self) -> Priors:
        """Return the same model with every hyperparameter that has a meaning in it learnt."""
        names = [] if self.choices else ["mass"]
        has_rates = self.item_rate_by_feature or self.item_choices or self.item_prior == "ibp"
        names += [] if has_rates else ["item_rate"]
        names += [] if self.effect_values else ["effect_sd"]
        names += [name for name, needed in _NEEDS.items() if getattr(self, needed)]
        names += ["remainder_sd"] if self.remainder else []
        return replace(self, learn=tuple(names))


@dataclass(frozen=True)
class Moves(_Settings):
    """Which block updates a sweep runs, and how often. Any choice draws from the same posterior."""

    user_scan: str = "parallel"
    """`parallel`: users at once, given a random order of users; `serial`: one user after the other."""
    prior_singletons: bool = True
    """Renew every user's private features from the prior."""
    collapsed_singletons: float = 0.01
    """Share of users whose private features are renewed with the items integrated out (below 1,000 users: all). Graded
    models, and those whose items come from the buffet, have no such move."""
    settle: int | None = None
    """Sweeps at the start of a chain in which no private feature is born: shared features come before noise. τ falls
    from a high value meanwhile; graded features are only born, whether they pay yet or not. None: 10, or 200 below
    1,000 users if not graded, and at most half of the warm-up."""
    feature_moves: int | None = None
    """Tries of whole features (births, deaths, regrowths, splits and merges) in a sweep that has them. None: 1, or 4
    below 1,000 users if not graded."""
    feature_every: int | None = None
    """Try whole features every so many sweeps once a chain has settled. None: every sweep, or every fourth if graded,
    where they are costly and hardly ever accepted by then."""
    complements: bool = True
    """Swap members and non-members of a feature when offsets can take up the difference; not in graded models."""
    offset_flips: float = 0.01
    """Share of item memberships flipped together with the item's offset; graded models draw both together anyway."""
    effect_every: int = 10
    """Update effects with the latent scores integrated out every so many sweeps (0: never); not in graded models."""
    noise_slice_every: int = 10
    """Update τ with the latent scores integrated out every so many sweeps (0: never), given them otherwise."""
    cutpoints_every: int = 5
    """Update free cutpoints every so many sweeps (0: never)."""
    table_from: int = 2_000
    """Number of ratings from which likelihoods are read off a table (more with more than eleven levels)."""

    def __post_init__(self) -> None:
        if self.user_scan not in ("parallel", "serial"):
            raise SettingsError(f"user_scan must be 'parallel' or 'serial', got {self.user_scan!r}.")
        for name in ("prior_singletons", "complements"):
            check_flag(name, getattr(self, name))
        for name in ("collapsed_singletons", "offset_flips"):
            check_number(name, getattr(self, name))
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise SettingsError(f"{name} is a share between 0 and 1, got {getattr(self, name)!r}.")
        for name in ("effect_every", "noise_slice_every", "cutpoints_every", "table_from"):
            check_count(name, getattr(self, name), least=0)
        for name, least in (("settle", 0), ("feature_moves", 0), ("feature_every", 1)):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least=least)
        if not (self.prior_singletons or self.collapsed_singletons > 0.0 or self.feature_moves != 0):
            raise SettingsError(
                "no move can create a feature: turn on prior_singletons, collapsed_singletons or feature_moves."
            )


@dataclass(frozen=True)
class Schedule(_Settings):
    """How long a run is and how it is spread over chains and threads."""

    sweeps: int | None = None
    """Sweeps per chain, warm-up included. None: 480, or 960 below 75,000 ratings, where they take little time."""
    warmup: int = 120
    """Sweeps thrown away at the start of each chain."""
    thin: int = 8
    """Keep every so many sweeps after the warm-up."""
    chains: int = 4
    """Independent chains, averaged in every answer."""
    threads: int | None = None
    """Threads used in all. None: every core. The draws do not depend on it."""

    def __post_init__(self) -> None:
        for name in ("thin", "chains"):
            check_count(name, getattr(self, name), least=1)
        check_count("warmup", self.warmup, least=0)
        for name in ("sweeps", "threads"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least=1)
        if self.warmup >= self.n_sweeps:
            raise SettingsError(f"warmup ({self.warmup}) must be below sweeps ({self.n_sweeps}), or no draw is left.")

    @property
    def n_sweeps(self) -> int:
        """Sweeps per chain: those asked for, else as many as there are on many ratings."""
        return _SWEEPS if self.sweeps is None else self.sweeps

    def on_ratings(self, n_ratings: int) -> Schedule:
        """Return the schedule for so many ratings, with its sweeps said."""
        usual = _SWEEPS_ON_FEW if n_ratings < _FEW_RATINGS else _SWEEPS
        return replace(self, sweeps=usual) if self.sweeps is None else self

    def keeps(self, sweep: int) -> bool:
        """Whether the state after so many sweeps is kept as a draw."""
        return sweep > self.warmup and (sweep - self.warmup) % self.thin == 0

    @property
    def draws_per_chain(self) -> int:
        """How many draws one chain keeps."""
        return (self.n_sweeps - self.warmup) // self.thin


@dataclass(frozen=True)
class Sharding(_Settings):
    """How users are split into shards with chains of their own, and how the shards become one answer."""

    shards: int
    """S: parts the users are split into at random; every part keeps all items."""
    merge: str = "precision"
    """How item offsets of shards become one. `precision`: shards run with the prior N(0, S σ_ρ²), the 1/S-th power of
    the model's, and are weighted by their precisions; `draws`: the same weights, draw by draw; `paper`: shards run with
    the whole prior each, and their means count alike."""
    second_stage: str = "refresh"
    """What a shard's features become once item offsets are merged. `refresh`: sweeps of everything else with the merged
    offsets held; `paper`: the stored draws whose offsets are nearest to the merged ones."""
    refresh_sweeps: int = 5
    """Sweeps with held offsets per draw (`refresh`)."""
    keep_share: float = 0.5
    """Share of the stored draws that are kept (`paper`)."""
    epsilon: float = 0.1
    """ε of the paper's rule |ρ − ρ̃| < ε for every item, whose hit rate is reported."""

    def __post_init__(self) -> None:
        for name in ("shards", "refresh_sweeps"):
            check_count(name, getattr(self, name), least=1)
        for name, known in (("merge", MERGES), ("second_stage", SECOND_STAGES)):
            if getattr(self, name) not in known:
                raise SettingsError(f"{name} must be {_either(known)}, got {getattr(self, name)!r}.")
        check_positive("keep_share", self.keep_share)
        if self.keep_share > 1.0:
            raise SettingsError(f"keep_share is a share above 0 and at most 1, got {self.keep_share!r}.")
        check_positive("epsilon", self.epsilon)

    def shard_priors(self, priors: Priors) -> Priors:
        """Return the priors a shard runs with; σ_ρ is then not learnt, since no power of a learnt prior is one."""
        if not priors.item_offsets:
            raise SettingsError("shards are merged through item offsets: they need item_offsets=True.")
        if self.merge == "paper":
            return priors
        wide = priors.item_offset_sd * math.sqrt(self.shards)
        return replace(priors, item_offset_sd=wide, learn=tuple(n for n in priors.learn if n != "item_offset_sd"))

    def merged_priors(self, priors: Priors) -> Priors:
        """Return the priors of a shard's draws after the second stage: the model's, with σ_ρ as the shards had it."""
        return replace(self.shard_priors(priors), item_offset_sd=priors.item_offset_sd)


def _either(names: tuple[str, ...]) -> str:
    return f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"


PRESETS = {
    "paper": Priors(),
    "full": Priors(
        mass=5.0,
        effect_sd=0.3,
        user_offsets=True,
        graded=True,
        user_grades=True,
        user_scales=True,
        free_cutpoints=True,
        choices=24,
        choice_least=1.1,
        item_choices=True,
        noise_rate=3.2,
        widen_from=10,
        learn=("effect_sd", "item_offset_sd", "user_offset_sd", "grade_sd", "user_scale_sd", "user_grade_sd"),
    ),
}


def preset(name: str) -> Priors:
    """Return the priors of a named preset."""
    if name not in PRESETS:
        raise SettingsError(f"unknown preset {name!r}. Choose among {', '.join(sorted(PRESETS))}.")
    return PRESETS[name]
