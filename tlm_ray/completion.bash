# completes commands, then the options that `tlm COMMAND --help` lists
[[ -n ${ZSH_VERSION-} ]] && autoload -U +X compinit bashcompinit && compinit && bashcompinit
_tlm() {
    local word=${COMP_WORDS[COMP_CWORD]} known=""
    if ((COMP_CWORD == 1)); then
        known="@COMMANDS@"
    elif [[ $word == -* ]]; then
        known=$("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]*' | sort -u)
    fi
    COMPREPLY=($(compgen -W "$known" -- "$word"))
}
complete -o default -F _tlm tlm
