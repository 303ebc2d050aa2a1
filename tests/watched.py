"""Call a reader in a child process that ends at once if what it reads starts, imports or overwrites something."""

import os
import resource
import sys
import tempfile
from pathlib import Path

from fuzzing import outcome

MEMORY = 1 << 30  # bytes of address space that a reader may add
CAUGHT = 66  # the status of a child that was ended
_STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn", "subprocess.", "socket.")
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.truncate")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def read_outcome(reader, folder, seconds=60):
    """How `reader(folder)` ends in a child: with status 0 if it loads or raises a ValueError or OSError."""
    return outcome(_read, reader, folder, seconds=seconds)


def said(found):
    """The word "loaded", or the error of a reader."""
    return found.out.rpartition("\0")[2]


def wrong(found, folder):
    """What is wrong with an outcome, or None: a reader loads, or raises one error with the name of a file."""
    if found.status == CAUGHT:
        return found.err.splitlines()[-1]
    if found.status != 0:
        return f"status {found.status}\n  " + "\n  ".join(found.err.splitlines()[-6:])
    if (message := said(found)) != "loaded" and str(folder) not in message:
        return f"names no file: {message}"
    if len(message) > 3000:
        return f"too long: {message[:1000]}"
    return None


def _read(reader, folder):
    sys.dont_write_bytecode, tempfile.tempdir = True, str(folder)
    os.cpu_count = lambda: 2  # threads take address space
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    sys.addaudithook(_watch(os.path.realpath(folder)))
    try:
        reader(folder)
        ended = "loaded"
    except (ValueError, OSError) as error:
        ended = f"{type(error).__name__}: {error}"
    sys.stdout.write(f"\0{ended}")  # behind the progress bars


def _watch(folder):
    installed = tuple({os.path.realpath(each) for each in (sys.prefix, sys.base_prefix, *sys.path) if each})

    def within(path, places):
        return os.path.realpath(os.fsdecode(path)).startswith(tuple(f"{each}/" for each in places))

    def changed(event, arguments):
        """The paths of a change. A relative one may be in a folder that is open, such as those that rmtree removes."""
        paths = [each for each in arguments if isinstance(each, str | bytes)]
        folders = arguments[-len(paths) :] if event != "os.truncate" else (-1,)
        return [
            f"/proc/self/fd/{folder}/{os.fsdecode(path)}" if isinstance(folder, int) and folder >= 0 else path
            for path, folder in zip(paths, folders, strict=True)
        ]

    def watch(event, arguments):
        if event == "exec":
            name = arguments[0].co_filename
            bad = not name.startswith("<frozen") and not within(name, installed)
        elif event == "open":
            path, mode, flags = arguments
            written = bool((flags or 0) & _WRITES) or any(letter in (mode or "") for letter in "wax+")
            bad = written and isinstance(path, str | bytes) and not within(path, (folder, "/dev"))
        elif event.startswith(_CHANGES):
            paths = changed(event, arguments)
            bad = any(not within(path, (folder,)) and os.path.realpath(path) != folder for path in paths)
        else:
            bad = event.startswith(_STARTS)
        if bad:
            os.write(2, f"\nforbidden: {event} {arguments}\n".encode(errors="replace"))
            os._exit(CAUGHT)

    return watch
