"""Every model that can be compared, by name."""

from __future__ import annotations

from collections.abc import Iterable

from doublefeature.errors import SettingsError, show
from doublefeature.evaluation.peers.autorec import AUTOREC
from doublefeature.evaluation.peers.base import Peer
from doublefeature.evaluation.peers.cmfrec import CMFREC
from doublefeature.evaluation.peers.cornac import MF, PMF
from doublefeature.evaluation.peers.libmf import LIBMF
from doublefeature.evaluation.peers.myfm import MYFM
from doublefeature.evaluation.peers.own import OWN, OWN_MODELS, RULES
from doublefeature.evaluation.peers.smurff import SMURFF
from doublefeature.evaluation.peers.surprise import KNN, SVDPP

PEERS = (KNN, SVDPP, LIBMF, PMF, MF, SMURFF, *MYFM, CMFREC, AUTOREC)
KNOWN = {peer.name: peer for peer in (*OWN_MODELS, *RULES, *PEERS)}

ALL = "all"
"""Stands for this package's default model, the rules, and every peer whose package is installed."""
GROUPS = {ALL: (OWN_MODELS[0], *RULES, *PEERS), "rules": RULES, "peers": PEERS, "myfm": MYFM}


def find_models(names: Iterable[str]) -> tuple[list[Peer], list[Peer]]:
    """Return the models behind names and groups, each once, and those that a group left out as not installed.

    A model asked for by its own name has to be installed; one that a group brings along may be missing.
    """
    found: dict[str, Peer] = {}
    missing: dict[str, Peer] = {}
    for name in names:
        if name in KNOWN:
            KNOWN[name].check_installed()
            found.setdefault(name, KNOWN[name])
        elif name in GROUPS:
            for peer in GROUPS[name]:
                (found if peer.installed else missing).setdefault(peer.name, peer)
        else:
            known = ", ".join([*GROUPS, *KNOWN])
            raise SettingsError(f"unknown model {show(name)}. Known are: {known}.")
    if not found:
        raise SettingsError(f"no model to compare. Choose among {', '.join([*GROUPS, *KNOWN])}.")
    return list(found.values()), list(missing.values())


__all__ = ["ALL", "GROUPS", "KNOWN", "OWN", "PEERS", "find_models"]
