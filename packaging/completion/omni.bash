# bash completion for omni, written by `omni completion bash`.

_omni_models() {
  # The daemon that the words so far name; a daemon that does not answer has no names.
  local i place=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --socket|--root) place=("${COMP_WORDS[i]}" "${COMP_WORDS[i + 1]}") ;;
    esac
  done
  "${COMP_WORDS[0]}" models --quiet "${place[@]}" 2>/dev/null
}

_omni() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
  local i command="" words="--help --version serve status ps models explain run load stop logs events reload shutdown check gc key doctor version completion"
  COMPREPLY=()
  case $prev in
    --socket) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    --root) COMPREPLY=($(compgen -d -- "$cur")); return ;;
    --config) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    --log-level) COMPREPLY=($(compgen -W "trace debug info warn error" -- "$cur")); return ;;
    --log-format) COMPREPLY=($(compgen -W "text json" -- "$cur")); return ;;
    --file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    -s|--system) COMPREPLY=($(:)); return ;;
    --set) COMPREPLY=($(:)); return ;;
    -n|--lines) COMPREPLY=($(:)); return ;;
  esac
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --socket|--root) ((i++)) ;;
      -*) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  case $command in
    serve) words="-h --help --root --config --log-level --log-format" ;;
    status) words="-h --help --socket --root --json" ;;
    ps) words="-h --help --pss --socket --root --json" ;;
    models) words="-h --help -q --quiet --socket --root --json" ;;
    explain) words="-h --help --socket --root --json" ;;
    run) words="-h --help --file -o --output -s --system --set --socket --root --json" ;;
    load) words="-h --help --socket --root --json" ;;
    stop) words="-h --help --socket --root --json" ;;
    logs) words="-h --help -f --follow -n --lines --socket --root" ;;
    events) words="-h --help --socket --root --json" ;;
    reload) words="-h --help --socket --root --json" ;;
    shutdown) words="-h --help --socket --root --json" ;;
    check) words="-h --help --root --json" ;;
    gc) words="-h --help --root --config --dry-run --force --json" ;;
    key) words="-h --help --json" ;;
    doctor) words="-h --help --socket --root --json" ;;
    version) words="-h --help --json" ;;
    completion) words="-h --help bash" ;;
  esac
  case $command in
    explain|run|load|stop|logs) [[ $cur == -* ]] || words="$(_omni_models)" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  case $command in
    run|check) [[ $cur == -* ]] || COMPREPLY+=($(compgen -f -- "$cur")) ;;
  esac
}

complete -F _omni omni
