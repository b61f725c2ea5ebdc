"""The shared parts of commands: groups that load a command when it is called, options, and the reading of lists.

Only Typer is loaded here, so that `runner --help` starts fast.
"""

from __future__ import annotations

import gc
import inspect
import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from typer.core import TyperGroup

from runner import errors
from runner.errors import UserError, first_problem, fix_of

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from reports.answers.export import Compact, Table
    from runner.results.on_disk.schema import Frames

# Rich's help would double the start-up time.
PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}

TextOrJson = Annotated[Literal["text", "json"], typer.Option("--format", help="Text for people, JSON for scripts.")]
AnyFormat = Annotated[
    Literal["text", "json", "markdown", "csv"], typer.Option("--format", help="How the answer is printed.")
]
Margin = Annotated[
    float, typer.Option(help="The smallest change that matters, in percent of the step time.", min=0.1, max=50)
]
# `--out` is its older name, as in furnish.OLDER.
Out = Annotated[Path, typer.Option("--results", "--out", help="Folder of the results.")]
Page = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write a page with the picture into this HTML file instead.")
]
BaseImage = Annotated[
    str | None,
    typer.Option(
        envvar="DLBENCH_BASE_IMAGE",
        help="Other base images, e.g. 'mirror.site/hub/{base}' or 'site:{python}'; also {cuda}. Each stands for the image's own.",
    ),
]


class LazyCommands(Mapping[str, Any]):
    """Click's commands by name. A command's module is imported when the command is looked up.

    The module has a function of the command's name, or an `app` that Typer makes a group or a command of. If the name is a word of
    Python's, both end with "_". `modules`: the commands whose function is in another command's module.
    """

    def __init__(self, package: str, names: Mapping[str, str], modules: Mapping[str, str]) -> None:
        self._package = package
        self._names = names
        self._modules = modules

    def __getitem__(self, name: str) -> Any:
        sentence = self._names[name]
        stem = name.replace("-", "_") + ("_" if keyword.iskeyword(name) else "")
        module = import_module(f"{self._package}.{self._modules.get(stem, stem)}")
        app: Any = module.__dict__.get("app")
        # One module may hold an app and commands beside it.
        if isinstance(getattr(module, stem, None), FunctionType):
            app = typer.Typer(**PLAIN)
            app.command(name)(getattr(module, stem))
        command: Any = typer.main.get_command(app)
        command.name = name
        command.help = "\n\n".join(filter(None, (sentence, command.help)))
        # The help of a group needs none of it.
        from runner.cli.help import furnish

        path = " ".join([*self._package.split(".")[2:], name])
        # A group that is no LazyGroup has all of its commands.
        for below, inner in {} if isinstance(command, LazyGroup) else getattr(command, "commands", {}).items():
            furnish(inner, f"{path} {below}")
        furnish(command, path)
        if not isinstance(command, LazyGroup):
            command.invoke = _collecting(command.invoke)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _collecting(invoke: Callable[..., Any]) -> Callable[..., Any]:
    """The command, before which the garbage collector starts again where `main` stopped it. It never searches what is loaded by then.

    Ctrl-C now lets it end what it began.
    """

    def collecting(context: Any) -> Any:
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        errors.ends_in_order()
        return invoke(context)

    return collecting


class LazyGroup(TyperGroup):
    """A group whose help needs none of its commands' modules."""

    package: ClassVar[str]
    # Each command with the first sentence of its help.
    names: ClassVar[Mapping[str, str]]
    # Those that no person calls: the group's help does not list them.
    unlisted: ClassVar[Mapping[str, str]] = {}
    modules: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands(self.package, {**self.names, **self.unlisted}, self.modules)  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.names.items()))


# Additions to an option beside its field in the model: other names, a variable of the environment, a check of the folder.
_MORE: dict[str, dict[str, Any]] = {
    "precisions": {"flag": "--precision", "also": "--precisions"},
    "out": {"flag": "--results", "also": "--out"},
    "base_image": {"envvar": "DLBENCH_BASE_IMAGE"},
    "data": {"exists": True, "file_okay": False},
    "images_from": {"exists": True, "file_okay": False},
    "catalog": {"exists": True, "file_okay": False},
}


def takes_options(model: type[BaseModel], *names: str, **defaults: Any) -> Callable[..., Callable[..., None]]:
    """Give a command the options that `model` declares, or those of them in `names`. It receives one `options`.

    The help text, the type, the bounds and the default of an option are those of the field. `defaults` replaces a default.
    """
    fields = {name: model.model_fields[name] for name in names or model.model_fields}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def wrapper(**given: Any) -> None:
            values = {name: _value(field, given.pop(name)) for name, field in fields.items()}
            # Names that were not given are left out: the model knows then which of its defaults nobody asked for.
            values = {name: value for name, value in values.items() if value != ()}
            return command(options=_validated(model, values), **given)

        own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [_parameter(name, field, defaults.get(name, field.default)) for name, field in fields.items()]
        parameters += [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own if parameter.name != "options"
        ]
        wrapper.__doc__ = command.__doc__
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapper

    return decorate


def flag_of(name: str) -> str:
    """The option of a field on the command line."""
    flag: str = _MORE.get(name, {}).get("flag", "--" + name.replace("_", "-"))
    return flag


def _parameter(name: str, field: FieldInfo, default: Any) -> inspect.Parameter:
    """A field of a model as a parameter that Typer makes an option of."""
    more = dict(_MORE.get(name, {}))
    flag = flag_of(name)
    more.pop("flag", None)
    also = [more.pop("also")] if "also" in more else []
    annotation: Any = field.annotation
    if annotation == tuple[str, ...]:
        annotation, default = list[str] | None, None
    elif annotation == tuple[int, ...]:
        annotation, default = str, ",".join(map(str, default))
    elif annotation is bool and default:
        flag = f"{flag}/{flag.replace('--', '--no-', 1)}"
    bounds = {
        limit: getattr(bound, limit) for bound in field.metadata for limit in ("ge", "le") if hasattr(bound, limit)
    }
    if len(bounds) == 2:
        more |= _number(flag, annotation in (int, int | None), bounds["ge"], bounds["le"])
    option = typer.Option(flag, *also, help=field.description, **more)
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=Annotated[annotation, option])


def _number(flag: str, whole: bool, least: float, most: float) -> dict[str, Any]:
    """How Typer reads a number between two bounds, and shows it in the help. Its own sentences are pydantic's."""
    kind = "a whole number" if whole else "a number"

    def read(given: str | float) -> float:
        try:
            number = int(given) if whole else float(given)
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            raise UserError(f"{flag}: {str(given)[:80]!r} is not {kind} from {least:.0f} to {most:.0f}; give one")
        return number

    return {"parser": read, "metavar": f"<{kind.split()[-1]} from {least:.0f} to {most:.0f}>"}


def _value(field: FieldInfo, given: Any) -> Any:
    """The command line's value of a field, in the field's own type."""
    if field.annotation == tuple[str, ...]:
        return split_words(given)
    return split_counts(given) if field.annotation == tuple[int, ...] else given


def _validated(model: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    from pydantic import ValidationError

    try:
        return model(**values)
    except ValidationError as error:
        raise UserError(f"--{first_problem(error)}") from None


def split_counts(text: str) -> tuple[int, ...]:
    """Numbers of devices between commas, sorted and without doubles."""
    from bench import rules

    counts = {rules.whole(word.strip()) or 0 for word in text.split(",")}
    if not all(0 < count < 10_000 for count in counts):
        raise UserError(f"--devices: {text[:80]!r} is not a number of devices, or several between commas like 1,2,4")
    return tuple(sorted(counts))


def split_words(values: list[str] | None) -> tuple[str, ...]:
    """The words of an option that may be repeated and may hold commas."""
    return tuple(word.strip() for value in values or () for word in value.split(",") if word.strip())


def write_page(output: Path, form: str, page: str) -> None:
    """Write a page, and print its path. Raises UserError."""
    from runner.results.store import write_bytes

    if form != "text":
        raise UserError(f"--output writes a page, and --format {form} prints: leave one of them out")
    try:
        write_bytes(output, page.encode())
    except OSError as error:
        fix = fix_of(error, "name a file in a folder of yours")
        raise UserError(f"--output {output} cannot be written ({error.strerror}); {fix}") from None
    typer.echo(str(output))


def print_rows(table: Table, few: Compact) -> None:
    """Print the table with all columns where they fit, as in a pipe, and else with `few`."""
    # Help prints no table.
    from runner.terminal import fits, folded, groups_fit, print_grouped, print_table
    from runner.text import visible

    narrow = not fits(table.heads, table.rows) and groups_fit(few.heads, few.groups)
    captions, notes = (few.captions, few.notes) if narrow else (filter(None, (table.caption,)), table.notes)
    for line in captions:
        typer.echo(folded(visible(line)))
    if narrow:
        print_grouped(few.heads, few.groups, few.numbers)
    else:
        print_table(table.heads, table.rows)
    for line in notes:
        typer.echo(folded(visible(line)))


def note(line: str) -> None:
    """Tell the user something on standard error. A script reads standard output."""
    typer.echo(line, err=True)


def stored_runs(out: Path) -> list[Path]:
    """The folders of all runs under `out`, oldest first."""
    from runner.results.store import created, runs_below, unset_clock
    from runner.text import in_a_line

    folders = runs_below(out)
    for folder in folders:
        if date := unset_clock(created(folder)):
            note(
                f"{in_a_line(folder.name, 80)} was made on {date}, by a clock that was never set, or is wrong: so is its place here"
            )
    if not folders:
        raise UserError(f"{out} holds no run; `runner matrix` makes one, --results names another folder")
    return folders


def renewed(folders: Sequence[Path], *, readable: bool = False) -> Sequence[Path]:
    """These runs, with tables that agree with their parcels. `readable`: one that cannot be read is left as it is; reading it says why."""
    from reports.answers.answers_table import answers_of
    from runner.admission.renew import renew
    from runner.results.on_disk.parcel_origin import of_run
    from runner.results.rows import rows_of
    from runner.results.store import RunStore, StoreError, read

    for folder in folders:
        try:
            if renew(RunStore(folder)):
                # They were of the tables before.
                answers_of(folder)
            if said := of_run(str(folder), rows_of(read([folder], "cells").select(["origin"]))):
                note(said)
        except (StoreError, OSError):
            if not readable:
                raise
    return folders


def chosen_runs(names: list[str] | None, out: Path) -> list[Path]:
    """The folders of the named runs, without doubles; the newest run where none is named. Their tables agree with their parcels.

    They have their answers, too.
    """
    from reports.answers.answers_table import answers_of

    folders = list(renewed(_chosen(names, out)))
    for folder in folders:
        answers_of(folder)
    return folders


def data_frames(names: list[str], out: Path) -> Frames:
    """The answers of the named runs, or of the newest, and their tables, as pandas has them."""
    import pyarrow as pa

    from reports.answers.answers_table import answers_of
    from runner.results.on_disk.schema import Frames
    from runner.results.store import tables_of

    folders = chosen_runs(names, out)
    answers = pa.concat_tables([answers_of(folder) for folder in folders]).to_pandas()
    stored = {name: table.to_pandas() for name, table in tables_of(folders, ("cells", "samples", "telemetry")).items()}
    return Frames(answers, stored["cells"], stored["samples"], stored["telemetry"])


def _chosen(names: list[str] | None, out: Path) -> list[Path]:
    from runner.results.store import run_folder

    if not names:
        return stored_runs(out)[-1:]
    folders: dict[Path, Path] = {}
    for name in names:
        for folder in _runs_in(run_folder(name, out)):
            folders.setdefault(folder.resolve(), folder)
    return list(folders.values())


def _runs_in(folder: Path) -> list[Path]:
    """The run that a folder is; of a folder of runs, or of such folders, a node each, all of them."""
    below = [] if (folder / "run.json").is_file() else [*folder.glob("*/run.json"), *folder.glob("*/*/run.json")]
    return sorted(path.parent for path in below) or [folder]
