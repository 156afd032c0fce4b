# SPDX-License-Identifier: Apache-2.0
"""Starts a recording in every Python process below `opscope run`, right after it imported a
framework.

`opscope run` puts this directory first on PYTHONPATH, so that Python's own start-up (module site)
imports this file. It only places two finders that wait for a name; a process that never imports
torch pays for that and nothing else. opscope itself is imported when torch has been; with --check a
little of it when the import of torch begins. Whatever fails here is one line on stderr and, where
the run directory can be written, a note that the launcher reads; the program always goes on.
Nothing happens unless OPSCOPE_RUN is set.

Interpreters that opscope does not support read this file too, Python 2 among them: hence its old
syntax without annotations.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import os
import sys

# Framework -> module and function to call once it has been imported.
FRAMEWORKS = {
    "torch": ("opscope.record.join", "join_from_environment"),
    "mindspore": ("opscope.record.mindspore.join", "join_from_environment"),
}
OLDEST = (3, 10)


class AfterImport:
    """Meta path finder that lets the others find a framework and calls back before and once its
    module has been executed.
    """

    def __init__(self, names, then, before=None):
        self.pending = set(names)
        self.then = then
        self.before = before
        self.asked = lambda: None  # called whenever a module is looked for

    def find_spec(self, name, path=None, target=None):
        """Spec of `name` as the other finders give it, its loader watched; None for everything but
        frameworks.

        Programs ask for a spec without importing (`importlib.util.find_spec("torch")`), so being
        asked ends nothing.
        """
        self.asked()
        if name not in self.pending or (path is not None) != ("." in name):
            return None
        spec = self._of_the_others(name, path, target)
        if spec is not None and spec.loader is not None:
            self._watch(spec, name)
        return spec

    def _of_the_others(self, name, path, target):
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def _watch(self, spec, name):
        """Call back after spec.loader has executed the module; by then the loader is as it was
        before.
        """
        loader = spec.loader
        if "exec_module" in getattr(loader, "__dict__", {}):
            return  # a loader that several specs share (zipimporter), watched already
        execute = loader.exec_module

        def exec_module(module):
            if module.__name__ != name:
                execute(module)
                return
            loader.__dict__.pop("exec_module", None)
            if self.before is not None:
                self.before(name)
            execute(module)
            # The module is whole: other threads that import it need not wait until the recorder has
            # started.
            module.__spec__._initializing = False
            self.imported(name)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            complain("not recording: the loader of " + name + " cannot be watched")

    def imported(self, name):
        """Call back once for each framework; nobody is asked any more after the last one."""
        if name in self.pending:
            self.pending.discard(name)
            if not self.pending and self in sys.meta_path:
                sys.meta_path.remove(self)
            self.then(name)


class HomeFinder:
    """Last meta path finder: finds the launcher's own opscope where this interpreter has none, and
    no other package.
    """

    starts_opscope = True  # record.activate asks

    def find_spec(self, name, path=None, target=None):
        """Spec of opscope in OPSCOPE_HOME; None for every other name."""
        home = os.environ.get("OPSCOPE_HOME")
        if name != "opscope" or path is not None or not home:
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [home], target)


def prepare(framework):
    """With --check: start the process that makes calls again, so that it imports torch beside the
    program, not after it.
    """
    if framework != "torch" or "--check" not in os.environ.get("OPSCOPE", "").split():
        return
    try:
        check_versions()
        __import__("opscope.record.active", None, None, ["active"]).active.prepare()
    except Exception:  # noqa: BLE001, S110 - join() will say what is wrong
        pass


def join(framework):
    """Let this process join the recording; a failure is one line and a note."""
    module, function = FRAMEWORKS[framework]
    try:
        check_versions()
        getattr(__import__(module, None, None, [function]), function)()
    except Exception as error:  # noqa: BLE001 - the recording boundary: a recorder never ends the program it watches
        remedy = (
            "; install opscope into this interpreter"
            if type(error).__name__ == "ModuleNotFoundError"
            else ""
        )
        complain("not recording: " + type(error).__name__ + ": " + str(error) + remedy)


def check_versions():
    """Raise ImportError when this interpreter or its own opscope cannot write what the launcher
    reads.
    """
    if sys.version_info < OLDEST:
        raise ImportError(
            "Python " + sys.version.split()[0] + " is older than opscope needs (3.10)"
        )
    import opscope

    wanted = os.environ.get("OPSCOPE_VERSION", opscope.__version__)
    if opscope.__version__ != wanted:
        where = os.path.dirname(os.path.abspath(str(opscope.__file__)))  # noqa: PTH100, PTH120 - pathlib is slow to import
        raise ImportError(
            "the launcher is opscope "
            + wanted
            + ", here is "
            + opscope.__version__
            + " in "
            + where
        )


def complain(message):
    """Say one line on stderr and leave it in the run directory."""
    line = (
        "opscope: "
        + " ".join(message.split())
        + " ("
        + sys.executable
        + ", pid "
        + str(os.getpid())
        + ")\n"
    )
    try:
        sys.stderr.write(line)
        # One file for each process, so that two never write into one another's lines.
        path = os.path.join(os.environ["OPSCOPE_RUN"], "note-" + str(os.getpid()) + ".txt")  # noqa: PTH118
        mode = os.stat(os.path.dirname(path)).st_mode & 0o666  # noqa: PTH116, PTH120 - open to whom the run is
        with open(
            path,
            "a",
            encoding="utf-8",
            errors="replace",
            opener=lambda name, flags: os.open(name, flags, mode),
        ) as note:
            note.write(line)
    except (OSError, ValueError, AttributeError, KeyError):
        return  # stderr closed or the run directory gone: there is nobody left to tell


def mark_started():
    """Leave one empty file that says some Python came through here; the launcher removes it."""
    try:
        path = os.path.join(os.environ["OPSCOPE_RUN"], "started")  # noqa: PTH118
        if not os.path.isabs(path):  # noqa: PTH117 - the launcher always writes an absolute one
            return
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return  # it is there already, or the directory cannot be written


def yield_to_next(after):
    """Leave sys.path as the program would have it without opscope, and import the sitecustomize it
    would have had.
    """
    own = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != own]  # noqa: PTH100
    ours = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        # The import system looks the module up by name once more before it returns.
        sys.modules.setdefault("sitecustomize", ours)
    if after is not None:
        after.asked = lambda: leave(after, ours)


def leave(after, ours):
    """With the next import: take this file from the modules, where the program would have no
    sitecustomize without opscope.
    """
    after.asked = lambda: None
    if sys.modules.get("sitecustomize") is ours:
        del sys.modules["sitecustomize"]


def start():
    """Place the finders, and return the first; a framework that a .pth file imported already is
    joined at once.
    """
    mark_started()
    sys.meta_path.append(HomeFinder())
    after = AfterImport(FRAMEWORKS, join, prepare)
    sys.meta_path.insert(0, after)
    for framework in FRAMEWORKS:
        if framework in sys.modules:
            after.imported(framework)
    return after


if __name__ == "sitecustomize":  # imported by module site, not by a test or a type checker
    # Python 3: find_spec is what imports ask for.
    yield_to_next(
        start() if os.environ.get("OPSCOPE_RUN") and hasattr(sys, "implementation") else None
    )
