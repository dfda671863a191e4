"""The places in the sources that skip a test."""
import re

TEST = re.compile(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", re.M)
UNIT = re.compile(r"^ *(?:GTEST_SKIP\(\)|SKIP_WITHOUT\()")


def found(files, pattern, group=0):
    """(file, line, text) of each line that the pattern is in, without those of macros."""
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = pattern.search(line)
            if match:
                yield str(path), number, match[group]


def unit_places(root):
    files = sorted((root / "tests/unit").rglob("*.cpp"))
    for path, number, text in found(files, UNIT):
        line = open(path).read().splitlines()[number - 1]
        if "<<" not in line or "sharedFile(file)" not in line:  # that of SKIP_WITHOUT itself
            yield path, number, text


def unit_tests(root):
    """Names of the tests that may be skipped, by folder of tests/unit. Of a place outside of every
    test (a fixture's) those are all of the file."""
    tests = {}
    for path, number, _ in unit_places(root):
        text = open(path).read()
        start = sum(len(line) for line in text.splitlines(True)[:number])
        before = [m for m in TEST.finditer(text) if m.start() < start]
        folder = path[len(str(root / "tests/unit")) + 1:].split("/")[0]
        tests.setdefault(folder, set()).update(
            f"{m[1]}.{m[2]}" for m in (before[-1:] or TEST.finditer(text)))
    return {folder: sorted(names) for folder, names in tests.items()}


def sources(root):
    """Scripts, programs in Python and suites, without what is here to skip."""
    def files(*patterns):
        return [f for folder in ("tests", "python/tests") for pattern in patterns
                for f in sorted((root / folder).rglob(pattern))
                if f.stem not in ("skip", "Skip") and f.parent.name != "skips"]

    return files("*.sh", "*.bash"), files("*.py"), files("suite/**/*.cpp")


def by_themselves(root):
    """Places that end as skipped without the function that is there for it."""
    for files in sources(root):
        yield from found(files, re.compile(r"\b(?:exit|return)[ (]77\b"))


def all_places(root):
    scripts, programs, suites = sources(root)
    yield from found(scripts, re.compile(r'(?:^|[|&({;]|\bthen) *skip "'))
    yield from found(programs, re.compile(r"(?:^|[ :(])skip\("))
    yield from found(suites, re.compile(r"\bskipped\("))
    yield from unit_places(root)
    cmake = sorted(root.glob("*/CMakeLists.txt")) + sorted(root.glob("tests/*/CMakeLists.txt"))
    yield from found(cmake, re.compile(r'^ *(?:cannot\(|gpt2c_skipped_test\(\S+ )"([^$"]*)"'), 1)
