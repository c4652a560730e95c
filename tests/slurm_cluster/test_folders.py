"""Tests of configurations in folders: a configuration is read and written completely or not at all."""

from pathlib import Path

from slurm_cluster.configuration.folders import File, Kept, digest, read, read_keys, remove, write


def test_a_configmap_folder_is_read_only_through_its_data_link(tmp_path: Path) -> None:
    """The test creates the folder as the kubelet does: a folder with the files, a link `..data` to this
    folder, and a link to each file."""
    moment = tmp_path / "..2026_11_27"
    (moment / "prolog.d").mkdir(parents=True)
    (moment / "slurm.conf").write_text("a")
    (moment / "prolog.d/one").write_text("b")
    (moment / "prolog.d/one").chmod(0o755)
    (tmp_path / "..data").symlink_to(moment.name)
    (tmp_path / "slurm.conf").symlink_to("..data/slurm.conf")
    assert read(tmp_path) == {"slurm.conf": File(b"a"), "prolog.d/one": File(b"b", executable=True)}


def test_files_are_written_with_their_modes_and_unchanged_files_stay(tmp_path: Path) -> None:
    files = {
        "slurm.conf": File(b"a"),
        "x/run": File(b"b", executable=True),
        "k": File(b"c", secret=True),
    }
    write(tmp_path, files)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in files] == [0o644, 0o755, 0o600]
    before = (tmp_path / "slurm.conf").stat()
    write(tmp_path, files)
    assert (tmp_path / "slurm.conf").stat().st_ino == before.st_ino
    write(tmp_path, {"slurm.conf": File(b"z")})
    assert (tmp_path / "slurm.conf").read_bytes() == b"z"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["k", "run", "slurm.conf", "x"]


def test_the_last_complete_configuration_is_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert kept.read() == {}
    first, second = {"slurm.conf": File(b"1")}, {"slurm.conf": File(b"2"), "a": File(b"")}
    kept.keep(first)
    kept.keep(second)
    assert Kept(tmp_path).read() == second


def test_a_crash_between_two_renames_loses_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.keep({"slurm.conf": File(b"1")})
    (tmp_path / "good").rename(tmp_path / "before")
    assert kept.read() == {"slurm.conf": File(b"1")}
    kept.keep({"slurm.conf": File(b"2")})
    assert kept.read() == {"slurm.conf": File(b"2")}


def test_keys_of_several_folders_are_secret(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.key").write_bytes(b"k")
    keys = read_keys([tmp_path / "a", tmp_path / "b"])
    assert {name: file.mode for name, file in keys.items()} == {"a.key": 0o600, "b.key": 0o600}


def test_removing_missing_files_succeeds(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    remove(tmp_path, ["a", "b"])
    assert not list(tmp_path.iterdir())


def test_a_digest_depends_on_name_mode_and_content() -> None:
    files = [{"a": File(b"1")}, {"b": File(b"1")}, {"a": File(b"2")}, {"a": File(b"1", executable=True)}]
    assert len({digest(each) for each in files}) == len(files)
    assert digest(files[0]) == digest({"a": File(b"1")})
