# SPDX-License-Identifier: MIT
# bash completion for mtx: commands, then the options that `mtx COMMAND --help` lists.
_mtx() {
  local cur=${COMP_WORDS[COMP_CWORD]} words
  if [ "$COMP_CWORD" = 1 ]; then
    words=$(mtx --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
  elif [[ $cur == -* ]]; then
    words=$(mtx "${COMP_WORDS[1]}" --help 2>/dev/null | grep -o -e '--[a-z-]*' | sort -u)
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur") $([ -n "$words" ] || compgen -f -- "$cur"))
}
complete -o filenames -F _mtx mtx
