"""Which score to trust, and how often CollapseGuard is right. README.md says what each part measures and found.

python examples/choosing/reproduce.py study --seeds 0 1 --jobs 2
python examples/choosing/reproduce.py study --data cifar10 --root CIFAR --seeds 0 1 --jobs 2
python examples/choosing/reproduce.py guard --seeds $(seq 0 29) --jobs 2
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from guard import guard
from recipe import errors_in_one_line, parser
from study import study
from study_arms import DATA

if __name__ == "__main__":
    arguments = parser(__doc__, "runs/choosing", what=["study", "guard"])
    arguments.add_argument("--data", choices=tuple(DATA), default="digits", help="of the study")
    given = arguments.parse_intermixed_args()
    with errors_in_one_line():
        {"study": study, "guard": guard}[given.what](given)
