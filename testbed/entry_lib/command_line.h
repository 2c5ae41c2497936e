// SPDX-License-Identifier: Apache-2.0
// What CLI11's own conversions let pass on a command line, refused: half numbers and empty values.
#ifndef FORGIVE_TESTBED_ENTRY_LIB_COMMAND_LINE_H_
#define FORGIVE_TESTBED_ENTRY_LIB_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <string>
#include <type_traits>

#include "dataplane/parse_number.h"

namespace forgive {

// For ->check(): the whole text is a number that the type holds. CLI11 takes "-1" for a large unsigned number, "" for
// zero, and the largest number for what is larger still.
template <typename Number>
CLI::Validator IsNumber() {
  const auto check = [](const std::string& text) -> std::string {
    Number ignored{};
    if (ParseNumber(text, &ignored)) return "";
    const char* const kind = !std::is_integral_v<Number>  ? "give a number"
                             : std::is_unsigned_v<Number> ? "give a whole number from 0"
                                                          : "give a whole number";
    return text + ": " + kind + (std::is_integral_v<Number> && text.size() > 8 ? ", and none that large" : "");
  };
  return CLI::Validator(check, "NUMBER");
}

// An option that takes a number, and nothing that is none.
template <typename Number>
CLI::Option* AddNumber(CLI::App& app, const std::string& name, Number& out, const std::string& text) {
  return app.add_option(name, out, text)->check(IsNumber<Number>());
}

// After parsing. Throws CLI::ValidationError that names an option or argument whose value is empty.
inline void RefuseEmptyValues(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& value : option->results()) {
      if (value.empty()) {
        throw CLI::ValidationError(option->get_name(), "its value is empty: give one, or leave it out");
      }
    }
  }
  for (const CLI::App* command : app.get_subcommands()) RefuseEmptyValues(*command);
}

// What is wrong, in one line.
inline std::string OneLine(const CLI::ParseError& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace forgive

#endif  // FORGIVE_TESTBED_ENTRY_LIB_COMMAND_LINE_H_
