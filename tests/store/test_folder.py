import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from doublefeature.config import Schedule
from doublefeature.errors import EnvironmentProblem, RatingsError, SettingsError, StoreError
from doublefeature.inference.chain import sample
from doublefeature.posterior.arrays import decode_arrays, encode_arrays
from doublefeature.posterior.card import card_text
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.manifest import VERSION, manifest_checksum
from doublefeature.posterior.store import ModelFolder, draws_digest
from doublefeature.ratings import Ratings
from tests.examples import message
from tests.store.cases import TITLES, QuickDisk, every_sweep, parts, random_posterior, same, tiny_ratings

FEATURES = [0, 1, 63, 64, 65, 130, 0, 128]


@pytest.fixture
def stored(tmp_path):
    """A folder with draws of none to 130 features, and what was put into it."""
    ratings = tiny_ratings()
    posterior = random_posterior(ratings, FEATURES, chains=2)
    model = parts(ratings=ratings, schedule=every_sweep(FEATURES, chains=2), items=TITLES)
    ModelFolder.save(tmp_path / "model", posterior, disk=QuickDisk(), **model)
    return tmp_path / "model", posterior, model


def refused(path, kind=StoreError) -> str:
    with pytest.raises(kind) as problem:
        ModelFolder.open(path)
    text = message(problem)
    assert text.isprintable()
    assert len(text) < 600
    return text


def reseal(folder: Path, change) -> None:
    """Change the manifest and give it a right checksum again."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    change(manifest)
    manifest.pop("checksum")
    manifest["checksum"] = manifest_checksum(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def rewrite(folder: Path, file: str, change) -> None:
    """Change the arrays of a file and give file and manifest right checksums again."""
    arrays = decode_arrays(np.fromfile(folder / file, np.uint8))
    change(arrays)
    data = b"".join(encode_arrays(arrays))
    (folder / file).write_bytes(data)

    def entries(manifest):
        yield from manifest["tables"].values()
        for chain in manifest["chains"]:
            yield from chain["segments"]
            if chain["resume"]:
                yield chain["resume"]

    def update(manifest):
        for entry in entries(manifest):
            if entry["file"] == file:
                entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))

    reseal(folder, update)


class TestRoundTrip:
    def test_draws_and_traces_come_back_bit_by_bit(self, stored):
        path, posterior, _ = stored
        found = ModelFolder.open(path).posterior()
        assert draws_digest(found) == draws_digest(posterior)
        assert found.n_features.tolist() == FEATURES * 2
        assert found.base == posterior.base
        for one, two in zip(found, posterior, strict=True):
            assert same(one, two)
        for one, two in zip(found.traces, posterior.traces, strict=True):
            assert same(one, two)

    def test_ratings_and_settings_come_back(self, stored):
        path, _, model = stored
        folder = ModelFolder.open(path)
        assert same(folder.ratings.arrays, model["ratings"].arrays)
        assert folder.ratings.users == model["ratings"].users
        assert folder.ratings.fingerprint == model["ratings"].fingerprint
        for name in ("priors", "schedule", "moves", "seed", "preset"):
            assert getattr(folder, name) == model[name]
        assert folder.items == TITLES
        assert folder.heldout is None
        assert folder.finished

    def test_the_digest_sees_the_last_bit_of_anything(self, stored):
        _, posterior, _ = stored
        digests = {draws_digest(posterior)}
        for name in ("effect", "user_words", "item_words", "hyper", "cutpoints", "item_offset"):
            array = getattr(posterior.draws[5], name).copy()
            array.view(np.uint64).flat[-1] ^= np.uint64(1)
            changed = [*posterior.draws]
            changed[5] = changed[5]._replace(**{name: array})
            digests.add(draws_digest(Posterior(posterior.base, changed)))
        changed[5] = posterior.draws[5]._replace(sweep=99)
        digests.add(draws_digest(Posterior(posterior.base, changed)))
        assert len(digests) == 8

    def test_real_chains(self, tmp_path):
        model = parts()
        settings = [model[name] for name in ("ratings", "priors", "schedule", "moves")]
        posterior = sample(*settings, seed=model["seed"])
        folder = ModelFolder.save(tmp_path / "model", posterior, **model)
        assert draws_digest(ModelFolder.open(tmp_path / "model").posterior()) == draws_digest(posterior)
        assert folder.finished
        for point, trace in zip(folder.resume_points, posterior.traces, strict=True):
            assert point.sweep == 12
            assert np.array_equal(point.tally, trace.tally)

    def test_every_file_opens_with_the_safetensors_package(self, stored):
        files = sorted(stored[0].rglob("*.safetensors"))
        assert len(files) == 8
        for file in files:
            theirs, ours = safetensors.numpy.load_file(file), decode_arrays(np.fromfile(file, np.uint8))
            assert theirs.keys() == ours.keys()
            assert all(theirs[name].tobytes() == ours[name].tobytes() for name in ours)

    def test_held_out_ratings(self, tmp_path):
        train, test = tiny_ratings().split(0.3, seed=1)
        ModelFolder.create(tmp_path / "model", **parts(ratings=train, heldout=test))
        folder = ModelFolder.open(tmp_path / "model")
        assert folder.heldout.fingerprint == test.fingerprint
        with pytest.raises(StoreError, match="ids and levels"):
            ModelFolder.create(tmp_path / "other", **parts(ratings=train, heldout=Ratings.from_triples([1], [1], [1])))
        assert not (tmp_path / "other").exists()

    @pytest.mark.parametrize("levels", ["1..5", "0.5..5:0.5", "3<2<1", "low<mid<high", "a, b<c..d"])
    def test_levels(self, tmp_path, levels):
        from doublefeature.levels import parse_levels

        scale = parse_levels(levels) if levels != "a, b<c..d" else ["a, b<c", "..", "1x"]
        ratings = Ratings.from_codes(np.array([0]), np.array([0]), np.array([1]), users=[1], items=[2], levels=scale)
        ModelFolder.create(tmp_path / "model", **parts(ratings=ratings))
        assert ModelFolder.open(tmp_path / "model").ratings.levels == ratings.levels

    def test_ids_of_any_text_and_size(self, tmp_path):
        users = ["", "a\nb", "𝄞", "1", 1, -7, 2**70, "é" * 1000]
        ratings = Ratings.from_codes(
            np.arange(8), np.arange(8) % 3, np.arange(8) % 2, users=users, items=range(3), levels=[0, 1]
        )
        ModelFolder.create(tmp_path / "model", **parts(ratings=ratings))
        found = ModelFolder.open(tmp_path / "model").ratings
        assert found.users == tuple(users)
        assert [type(user) for user in found.users] == [type(user) for user in users]
        assert found.items == (0, 1, 2)

    @pytest.mark.parametrize("label", [1.5, True, None, ("a", 1), "\ud800"])
    def test_other_ids_are_refused_before_anything_is_written(self, tmp_path, label):
        ratings = Ratings.from_codes(
            np.array([0]), np.array([0]), np.array([1]), users=["a"], items=[label], levels=[0, 1]
        )
        with pytest.raises(RatingsError, match="Convert item ids to text or whole numbers") as problem:
            ModelFolder.create(tmp_path / "model", **parts(ratings=ratings))
        message(problem)
        assert not (tmp_path / "model").exists()

    def test_item_columns(self, tmp_path):
        table = {"film 3": {"title": "Ā\n", "year": "1979"}, "film 5": {"year": ""}, "elsewhere": {"title": "x"}}
        ModelFolder.create(tmp_path / "model", **parts(items=table))
        assert ModelFolder.open(tmp_path / "model").items == {key: table[key] for key in ("film 3", "film 5")}
        with pytest.raises(RatingsError, match="Convert item columns to text"):
            ModelFolder.create(tmp_path / "other", **parts(items={"film 3": {"year": 1979}}))
        ModelFolder.create(tmp_path / "none", **parts(items={}))
        assert ModelFolder.open(tmp_path / "none").items is None


class TestCreate:
    def test_missing_parents_are_made(self, tmp_path):
        ModelFolder.create(tmp_path / "a" / "b" / "model", **parts())
        assert not ModelFolder.open(tmp_path / "a" / "b" / "model").finished

    def test_an_empty_folder_is_taken(self, tmp_path):
        ModelFolder.create(tmp_path, **parts())

    def test_what_is_there_is_never_overwritten(self, tmp_path):
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "notes.txt").write_text("mine")
        (tmp_path / "file").write_text("mine")
        ModelFolder.create(tmp_path / "model", **parts())
        for name, remedy in (("full", "Choose another path"), ("file", "is a file"), ("model", "Resume it")):
            with pytest.raises(StoreError, match=remedy) as problem:
                ModelFolder.create(tmp_path / name, **parts())
            message(problem)
        assert (tmp_path / "full" / "notes.txt").read_text() == "mine"

    def test_leftovers_of_a_creation_cut_short_are_taken_over(self, tmp_path):
        for name in ("users.safetensors", "ratings.safetensors.partial"):
            (tmp_path / name).write_text("half")
        assert "no manifest.json" in refused(tmp_path)
        ModelFolder.create(tmp_path, **parts())
        ModelFolder.open(tmp_path)

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
    def test_a_read_only_place_is_refused(self, tmp_path):
        tmp_path.chmod(0o500)
        with pytest.raises(EnvironmentProblem, match="permission denied") as problem:
            ModelFolder.create(tmp_path / "model", **parts())
        message(problem)

    def test_a_place_the_system_never_writes_to(self):
        with pytest.raises(EnvironmentProblem, match=r"/proc/nowhere: writing failed") as problem:
            ModelFolder.create("/proc/nowhere", **parts())
        message(problem)


class TestSave:
    def test_draws_that_no_schedule_keeps_are_refused(self, tmp_path):
        ratings = tiny_ratings()
        posterior = random_posterior(ratings, [1, 2, 3])
        model = parts(ratings=ratings, schedule=every_sweep([1, 2, 3]))
        wrong = [
            Posterior(posterior.base, posterior.draws[1:], posterior.traces),
            Posterior(posterior.base, posterior.draws, []),
            Posterior(posterior.base, [draw._replace(log_likelihood=0.0) for draw in posterior], posterior.traces),
            Posterior(posterior.base, posterior.draws, [posterior.traces[0]._replace(chain=4)]),
        ]
        for odd in wrong:
            with pytest.raises(StoreError, match="not stored") as problem:
                ModelFolder.save(tmp_path / "model", odd, **model)
            message(problem)
        assert not (tmp_path / "model").exists()

    def test_what_could_not_be_read_is_not_written(self, tmp_path):
        ratings = tiny_ratings()
        posterior = random_posterior(ratings, [1, 2])
        posterior.draws[1].effect[0] = np.nan
        with pytest.raises(StoreError, match="not finite"):
            ModelFolder.save(tmp_path / "model", posterior, **parts(ratings=ratings, schedule=every_sweep([1, 2])))

    def test_a_chain_that_did_not_end_on_a_draw_cannot_go_on(self, tmp_path):
        model = parts(schedule=Schedule(sweeps=12, warmup=4, thin=3, chains=1, threads=1))
        settings = [model[name] for name in ("ratings", "priors", "schedule", "moves")]
        folder = ModelFolder.save(tmp_path / "model", sample(*settings, seed=5), **model)
        assert folder.finished
        assert folder.resume_points == [None]
        with folder.writing(), pytest.raises(StoreError, match="cannot go on"):
            folder.lengthen(20)


class TestRefusals:
    def test_not_a_model(self, tmp_path):
        assert "is not a folder" in refused(tmp_path / "nowhere")
        assert "no manifest.json" in refused(tmp_path)
        (tmp_path / "manifest.json").write_text('{"format": "something else"}')
        assert "not the manifest of a doublefeature model" in refused(tmp_path)

    def test_versions(self, stored):
        path = stored[0]
        reseal(path, lambda manifest: manifest.update(version=VERSION + 1))
        assert "Upgrade doublefeature" in refused(path)
        reseal(path, lambda manifest: manifest.update(version=0))
        assert "Fit the model again" in refused(path)

    CHANGES = (
        ("unknown key", lambda m: m.update(extra=1), "not known"),
        ("missing key", lambda m: m.pop("seed"), "missing"),
        ("unknown prior", lambda m: m["priors"].update(more=1), "unknown key"),
        ("unknown move", lambda m: m["moves"].update(more=1), "unknown key"),
        ("prior of a wrong type", lambda m: m["priors"].update(learn={"mass": 1}), "priors"),
        ("number for a flag", lambda m: m["priors"].update(user_offsets=1), "priors"),
        ("prior out of range", lambda m: m["priors"].update(item_rate=2.0), "priors"),
        ("null for a list", lambda m: m["priors"].update(learn=None), "priors"),
        ("seed", lambda m: m.update(seed=2**63), "seed"),
        ("negative seed", lambda m: m.update(seed=-1), "seed"),
        ("base", lambda m: m.update(base=1.0), "base score"),
        ("fingerprint", lambda m: m.update(fingerprint="0" * 64), "not those of the manifest"),
        ("other levels", lambda m: m.update(levels=[1, 2, 3, 4, 6]), "not those of the manifest"),
        ("repeated levels", lambda m: m.update(levels=[1, 1, 2, 3, 4]), "levels"),
        ("levels of booleans", lambda m: m.update(levels=[False, True]), "levels"),
        ("users", lambda m: m["sizes"].update(users=2**40), "does not fit"),
        ("fewer chains", lambda m: m["schedule"].update(chains=1), "chains are listed"),
        ("sweeps left open", lambda m: m["schedule"].update(sweeps=None), "sweeps is absent"),
        ("fewer sweeps", lambda m: m["schedule"].update(sweeps=7), "sweeps, the schedule"),
        ("other draws", lambda m: m["schedule"].update(thin=2), "does not fit"),
        ("another path", lambda m: m["tables"]["users"].update(file="../users.safetensors"), "names"),
        ("absolute path", lambda m: m["chains"][0]["segments"][0].update(file="/etc/passwd"), "names"),
        ("segment as table", lambda m: m["tables"].update(more=m["tables"]["users"]), "tables are"),
        ("no users", lambda m: m["tables"].pop("users"), "tables are"),
        ("no item table", lambda m: m["tables"].pop("item-table"), "belong together"),
        ("wrong size", lambda m: m["tables"]["users"].update(bytes=1), "bytes instead of"),
        ("negative size", lambda m: m["tables"]["users"].update(bytes=-1), "out of range"),
        ("wrong draws", lambda m: m["chains"][0]["segments"][0].update(draws=3), "not those listed"),
        ("swapped chains", lambda m: m["chains"].reverse(), "names"),
        ("lost segment", lambda m: m["chains"][0].update(segments=[]), "no segment"),
        ("move names", lambda m: m.update(move_names=["birth"]), "does not fit"),
    )

    @pytest.mark.parametrize(("change", "reason"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
    def test_manifests(self, stored, change, reason):
        path = stored[0]
        reseal(path, lambda manifest: None)
        ModelFolder.open(path)
        reseal(path, change)
        assert reason in refused(path)

    def test_a_manifest_without_its_checksum(self, stored):
        path = stored[0]
        text = (path / "manifest.json").read_text()
        (path / "manifest.json").write_text(text.replace('"seed": 5', '"seed": 6'))
        assert "checksum" in refused(path)

    SEGMENT = "chain-0/segment-00000.safetensors"
    RESUME = "chain-1/resume-00001.safetensors"
    ARRAYS = (
        ("bit beyond K", SEGMENT, "user_words", lambda a: a.__setitem__(24, 1 << 63), "does not exist"),
        ("feature without users", SEGMENT, "user_words", lambda a: a.fill(0), "no users"),
        ("item beyond K", SEGMENT, "item_words", lambda a: a.fill(2**64 - 1), "items belong"),
        ("endless effect", SEGMENT, "effect", lambda a: a.__setitem__(3, np.inf), "effect"),
        ("rate", SEGMENT, "item_rate", lambda a: a.__setitem__(3, 1.5), "probability"),
        ("offset", SEGMENT, "user_offset", lambda a: a.__setitem__((0, 0), np.nan), "user_offset"),
        ("scale", SEGMENT, "user_scale", lambda a: a.__setitem__((0, 0), 7), "noise factor"),
        ("cutpoints", SEGMENT, "cutpoints", lambda a: a.__setitem__((0, 2), 0.5), "cutpoints"),
        ("open end", SEGMENT, "cutpoints", lambda a: a.__setitem__((0, 0), 0.0), "cutpoints"),
        ("K = 2^31", SEGMENT, "trace.n_features", lambda a: a.__setitem__(2, 2**31), "does not fit"),
        ("K = 2^62", SEGMENT, "trace.n_features", lambda a: a.__setitem__(2, 2**62), "out of range"),
        ("K < 0", SEGMENT, "trace.n_features", lambda a: a.__setitem__(2, -1), "out of range"),
        ("likelihood", SEGMENT, "trace.log_likelihood", lambda a: a.__setitem__(2, np.nan), "log likelihood"),
        ("hyper", SEGMENT, "trace.hyper", lambda a: a.__setitem__((2, 0), 0.0), "positive"),
        ("fixed hyper", SEGMENT, "trace.hyper", lambda a: a.__setitem__((2, 3), 2.5), "not sampled"),
        ("sweeps", SEGMENT, "sweep", lambda a: a.__setitem__(2, 9), "schedule keeps"),
        ("tally", SEGMENT, "tally", lambda a: a.__setitem__((0, 1), 10**6), "accepted"),
        ("state's K", RESUME, "active", lambda a: a.__setitem__(-1, 0), "its trace says"),
        ("state's flags", RESUME, "active", lambda a: a.__setitem__(0, 2), "its trace says"),
        ("state's hyper", RESUME, "hyper", lambda a: a.__setitem__(0, 7.0), "its trace says"),
        ("state's idle effect", RESUME, "effect", lambda a: a.__setitem__(-1, np.nan), "effect"),
        ("state's users", RESUME, "user_words", lambda a: a.fill(0), "no users"),
        ("item code", "ratings.safetensors", "item_codes", lambda a: a.__setitem__(0, 9), "does not exist"),
        ("level code", "ratings.safetensors", "levels", lambda a: a.__setitem__(0, 5), "does not exist"),
        ("order", "ratings.safetensors", "item_codes", lambda a: a.__setitem__(1, a[0]), "not in order"),
        ("pointer", "ratings.safetensors", "user_ptr", lambda a: a.__setitem__(3, 10**9), "begin"),
        ("other rating", "ratings.safetensors", "levels", lambda a: np.subtract(4, a, out=a), "not those of"),
        ("id twice", "users.safetensors", "text", lambda a: a.fill(ord("1")), "comes twice"),
        ("id not UTF-8", "items.safetensors", "text", lambda a: a.fill(0xFF), "UTF-8"),
        ("number with letters", "users.safetensors", "text", lambda a: a.fill(ord("x")), "whole number"),
        ("id starts", "items.safetensors", "starts", lambda a: a.__setitem__(1, -1), "begin"),
        ("id flags", "items.safetensors", "is_number", lambda a: a.fill(3), "neither"),
        ("cell flags", "item-table.safetensors", "present", lambda a: a.fill(3), "neither"),
        ("cell inside a character", "item-table.safetensors", "starts", lambda a: a.__setitem__(1, 1), "inside"),
    )

    @pytest.mark.parametrize(
        ("file", "name", "change", "reason"), [case[1:] for case in ARRAYS], ids=[case[0] for case in ARRAYS]
    )
    def test_arrays(self, stored, file, name, change, reason):
        path = stored[0]
        rewrite(path, file, lambda arrays: None)
        ModelFolder.open(path)
        rewrite(path, file, lambda arrays: change(arrays[name]))
        text = refused(path)
        assert reason in text
        assert file.removesuffix(".safetensors") in text

    def test_flipped_truncated_missing_and_odd_files(self, stored):
        path = stored[0]
        file = path / self.SEGMENT
        data = file.read_bytes()
        file.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        assert "checksum" in refused(path)
        file.write_bytes(data[:-1])
        assert "bytes instead of" in refused(path)
        file.unlink()
        assert "missing" in refused(path)
        file.mkdir()
        assert "not a file" in refused(path)
        file.rmdir()
        os.mkfifo(file)
        assert "not a file" in refused(path)
        file.unlink()
        file.write_bytes(data)
        ModelFolder.open(path)

    def test_a_huge_manifest_is_not_read(self, stored):
        with (stored[0] / "manifest.json").open("r+b") as file:
            file.truncate(2**40)
        assert "are possible" in refused(stored[0])


def test_card(stored):
    folder = ModelFolder.open(stored[0])
    text = card_text(folder, {"R-hat of the log likelihood": "1.02\nand more"})
    assert text.splitlines()[0] == "# A doublefeature model"
    for line in ("* users: 12", "* draws: 16", "* levels: 1..5", "R-hat of the log likelihood: 1.02 and more"):
        assert line in text
    assert folder.ratings.fingerprint in text
    assert "## Privacy" in text
    folder.write_card(text)
    assert (stored[0] / "card.md").read_text() == text
    ModelFolder.open(stored[0])


def test_lengthening_only_grows(stored):
    folder = ModelFolder.open(stored[0])
    with folder.writing():
        for wrong in (3, 0, "9", 2.5):
            with pytest.raises(SettingsError):
                folder.lengthen(wrong)
        folder.lengthen(30)
    assert ModelFolder.open(stored[0]).schedule.sweeps == 30
    assert not folder.finished
