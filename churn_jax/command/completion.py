"""`churn-jax completion bash|zsh|fish`: a script that asks the command what may follow.

The script calls `churn-jax completion SHELL WORDS...`, which prints what the last word
may become, since the rows of a study and the options depend on the words before.
"""

import re
import shlex
import textwrap
from collections.abc import Sequence

from churn_jax.command import COMMANDS
from churn_jax.setting_checks import check_choice

SHELLS = {
    "bash": r"""# eval "$(churn-jax completion bash)"
_churn_jax() {
    local IFS=$'\n'
    COMPREPLY=($("$1" completion bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o bashdefault -o default -o nosort -F _churn_jax churn-jax
""",
    "zsh": r"""#compdef churn-jax
# eval "$(churn-jax completion zsh)"
_churn_jax() {
    local -a given found described end
    given=("${(@Q)words[2,CURRENT]}")
    found=("${(@f)$(${(Q)words[1]} completion zsh "${given[@]}" 2>/dev/null)}")
    [[ -n $found ]] || { _files; return }
    for line in $found; do
        described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        [[ $line == *=$'\t'* ]] && end=(-S '')
    done
    _describe churn-jax described $end
}
if [[ $funcstack[1] == _churn_jax ]]; then
    _churn_jax "$@"
else
    compdef _churn_jax churn-jax
fi
""",
    "fish": r"""# churn-jax completion fish | source
function __churn_jax
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l found (churn-jax completion fish $words[2..-1] "$current" 2>/dev/null)
    if test -n "$found"
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c churn-jax -f -a '(__churn_jax)'
""",
}


_HELP = """usage: churn-jax completion bash|zsh|fish

Prints a script that completes commands, presets, rows, coefficients and options:

  bash  eval "$(churn-jax completion bash)"        in ~/.bashrc
  zsh   eval "$(churn-jax completion zsh)"         in ~/.zshrc, after compinit
  fish  churn-jax completion fish | source         in ~/.config/fish/config.fish"""


def completion(argv: Sequence[str]) -> int:
    """Prints the script of a shell, or what the last of the words may become."""
    if argv[:1] in (["-h"], ["--help"]):
        print(_HELP)
        return 0
    if not argv:
        raise ValueError("completion needs a shell: bash, zsh or fish")
    shell, *words = argv
    check_choice("the shell", shell, SHELLS)
    if not words:
        print(SHELLS[shell], end="")
        return 0
    if shell == "bash":
        words = _words(words[0])[1:] or [""]
    *before, current = words
    found = COMMANDS
    if before:
        from churn_jax.command.candidates import candidates

        found = candidates(before, current)
    found = {name: line for name, line in found.items() if name.startswith(current)}
    if shell == "bash":
        # Bash completes what follows the last colon or equals sign of a word.
        done = 1 + max(current.rfind(":"), current.rfind("="))
        lines = [name[done:] for name in found]
    else:
        lines = [f"{name}\t{_short(line)}" for name, line in found.items()]
    print("".join(f"{line}\n" for line in lines), end="")
    return 0


def _short(line: str) -> str:
    """The first sentence, or its beginning."""
    return textwrap.shorten(re.split(r"[.;] |[.;:]$", line)[0], 76, placeholder=" ...")


def _words(line: str) -> list[str]:
    """The words of a line up to the cursor; the last one may be empty or unfinished."""
    try:
        found = shlex.split(line)
    except ValueError:  # a quote is open
        found = line.split()
    return found if line[-1:].strip() else [*found, ""]
