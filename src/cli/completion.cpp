#include <CLI/CLI.hpp>

#include "cli/program.h"

namespace omni::cli {
namespace {

std::vector<const CLI::Option*> flags_of(const CLI::App& app) {
  std::vector<const CLI::Option*> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_lnames().empty() || !option->get_snames().empty()) flags.push_back(option);
  }
  return flags;
}

// "-f --follow", each form separated by `separator`.
std::string forms(const CLI::Option& option, std::string_view separator) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return fmt::format("{}", fmt::join(names, separator));
}

// How a flag's value is completed, from the type that its help shows.
std::string value_words(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type == "FILE") return "compgen -f -- \"$cur\"";
  if (type == "DIR") return "compgen -d -- \"$cur\"";
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}');
  if (open == type.npos || close == type.npos) return ":";
  std::string choices = type.substr(open + 1, close - open - 1);
  std::ranges::replace(choices, ',', ' ');
  return fmt::format("compgen -W \"{}\" -- \"$cur\"", choices);
}

bool has_positional(const CLI::App& command, std::string_view name) {
  return std::ranges::any_of(command.get_options(), [&](const CLI::Option* option) {
    return option->get_positional() && option->get_name(true) == name;
  });
}

// The script asks the daemon for names, so that it knows the models of today.
std::string bash_script(const CLI::App& app) {
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  std::string names;
  std::string flags;
  std::set<std::string> values;
  std::string values_cases;
  std::string model_commands;
  std::string file_commands;
  const auto add_values = [&](const CLI::App& one) {
    for (const CLI::Option* option : flags_of(one)) {
      if (option->get_items_expected_max() == 0) continue;
      const std::string pattern = forms(*option, "|");
      if (!values.insert(pattern).second) continue;
      values_cases +=
          fmt::format("    {}) COMPREPLY=($({})); return ;;\n", pattern, value_words(*option));
    }
  };
  add_values(app);
  for (const CLI::App* command : commands) {
    const std::string& name = command->get_name();
    names += (names.empty() ? "" : " ") + name;
    std::vector<std::string> words;
    for (const CLI::Option* option : flags_of(*command)) words.push_back(forms(*option, " "));
    if (name == "completion") words.push_back("bash");
    flags += fmt::format("    {}) words=\"{}\" ;;\n", name, fmt::join(words, " "));
    if (has_positional(*command, "model"))
      model_commands += (model_commands.empty() ? "" : "|") + name;
    if (has_positional(*command, "path") || has_positional(*command, "input")) {
      file_commands += (file_commands.empty() ? "" : "|") + name;
    }
    add_values(*command);
  }
  return fmt::format(R"script(# bash completion for omni, written by `omni completion bash`.

_omni_models() {{
  # The daemon that the words so far name; a daemon that does not answer has no names.
  local i place=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      --socket|--root) place=("${{COMP_WORDS[i]}}" "${{COMP_WORDS[i + 1]}}") ;;
    esac
  done
  "${{COMP_WORDS[0]}}" models --quiet "${{place[@]}}" 2>/dev/null
}}

_omni() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}}
  local i command="" words="--help --version {0}"
  COMPREPLY=()
  case $prev in
{1}  esac
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      --socket|--root) ((i++)) ;;
      -*) ;;
      *) command=${{COMP_WORDS[i]}}; break ;;
    esac
  done
  case $command in
{2}  esac
  case $command in
    {3}) [[ $cur == -* ]] || words="$(_omni_models)" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  case $command in
    {4}) [[ $cur == -* ]] || COMPREPLY+=($(compgen -f -- "$cur")) ;;
  esac
}}

complete -F _omni omni
)script",
                     names, values_cases, flags, model_commands, file_commands);
}

}  // namespace

void add_completion(CLI::App& app, Program& program) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = add_command(app, "completion", "Print the completion script of a shell");
  command->add_option("shell", *shell, "bash")->required()->check(CLI::IsMember({"bash"}));
  // `shell` has one value; it lives until the parser has written to it.
  command->callback([&app, &program, shell] {
    program.command = [&app, &program] { return program.console.write(bash_script(app)); };
  });
}

}  // namespace omni::cli
