# SPDX-License-Identifier: MIT
# fish completion for mtx: commands, then options, then files.
complete -c mtx -n __fish_use_subcommand -f -a "(mtx --help | string match -rg '^  ([a-z]+)  +(.*)' | string replace -r '\n' '\t')"
complete -c mtx -n 'not __fish_use_subcommand' -a "(mtx (commandline -opc)[2] --help 2>/dev/null | string match -ra -- '--[a-z-]+' | sort -u)"
