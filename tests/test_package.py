import os
import subprocess
import sys

import pytest

import doublefeature as df


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "doublefeature", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )


def test_public_names():
    assert sorted(df.__all__) == df.__all__
    for name in df.__all__:
        assert getattr(df, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = df.nothing


def test_importing_costs_little():
    code = "import sys, doublefeature; sys.exit('numba' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestCommandLine:
    def test_version_and_help(self):
        assert run("--version").stdout.strip() == f"doublefeature {df.__version__}"
        assert run("--help").returncode == 0

    def test_describe(self, tmp_path):
        file = tmp_path / "ratings.csv"
        file.write_text("user,item,rating\na,x,5\nb,x,3\n")
        result = run("data", "describe", str(file), "--json")
        assert result.returncode == 0
        assert '"ratings": 2' in result.stdout

    @pytest.mark.parametrize(
        "arguments",
        [
            ("data", "describe", "no such file.csv"),
            ("demo", "--seed", "x"),
            ("demo", "--sweeps", "0"),
            ("demo", "--sweeps", "1"),
            ("unknown",),
            ("demo", "--bogus"),
        ],
    )
    def test_mistakes_end_with_2_and_no_traceback(self, arguments):
        result = run(*arguments)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
        assert result.stdout == ""

    def test_bad_ratings_get_one_line(self, tmp_path):
        file = tmp_path / "ratings.csv"
        file.write_text("user,item,rating\na,x,9\n")
        result = run("data", "describe", str(file), "--levels", "1..5")
        assert result.returncode == 2
        assert result.stderr.count("\n") == 1
        assert "levels 1..5" in result.stderr
