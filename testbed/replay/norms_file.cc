// SPDX-License-Identifier: Apache-2.0
// Reading recorded gradient norms and labels, row by row, with the line in every complaint.
#include "testbed/replay/norms_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "dataplane/parse_number.h"
#include "testbed/replay/error.h"

namespace forgive::replay {
namespace {

using nlohmann::json;

constexpr size_t kMostRows = 100'000'000;

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::vector<std::string> SplitRow(std::string_view line) {
  std::vector<std::string> cells;
  for (size_t at = 0;;) {
    const size_t comma = line.find(',', at);
    cells.emplace_back(Trim(line.substr(at, comma == std::string_view::npos ? comma : comma - at)));
    if (comma == std::string_view::npos) return cells;
    at = comma + 1;
  }
}

// The lines of one file, and complaints that name them.
class Lines {
 public:
  explicit Lines(const std::string& file) : file_(file), stream_(file) {
    if (!stream_) throw InputError(fmt::format("{}: cannot be read: {}", file, std::strerror(errno)));
  }
  // The next line that is not blank.
  bool Next(std::string* line) {
    while (std::getline(stream_, *line)) {
      ++number_;
      if (number_ == 1 && line->starts_with("\xef\xbb\xbf")) line->erase(0, 3);
      if (number_ > kMostRows) Fail(fmt::format("more than {} lines", kMostRows));
      if (!Trim(*line).empty()) return true;
    }
    if (stream_.bad()) throw InputError(fmt::format("{}: cannot be read: it is no file of lines", file_));
    return false;
  }
  [[noreturn]] void Fail(const std::string& what) const {
    throw InputError(fmt::format("{}:{}: {}", file_, number_, what));
  }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::ifstream stream_;
  size_t number_ = 0;
};

// As a line on the terminal can show it: short, and without what a terminal would obey.
std::string Shown(std::string_view text) {
  constexpr size_t kMostShown = 60;
  std::string out(text.substr(0, kMostShown));
  for (char& each : out) {
    if (static_cast<unsigned char>(each) < ' ' || static_cast<unsigned char>(each) > '~') each = '?';
  }
  return text.size() > kMostShown ? out + "..." : out;
}

uint64_t ParseStep(const Lines& lines, const std::string& text) {
  uint64_t step = 0;
  if (!ParseNumber(text, &step))
    lines.Fail(fmt::format("step \"{}\": not a step number (digits, from 0)", Shown(text)));
  return step;
}

// Not ParseNumber: NaN, infinity and what a double cannot hold are norms too, which the detector judges.
double ParseNorm(const Lines& lines, const std::string& text) {
  double norm = 0;
  const char* begin = text.data() + (text.starts_with('+') && !text.starts_with("+-") ? 1 : 0);
  const auto [stop, error] = std::from_chars(begin, text.data() + text.size(), norm);
  if (stop != text.data() + text.size() || text.empty() || error == std::errc::invalid_argument) {
    lines.Fail(fmt::format("norm \"{}\": not a number", Shown(text)));
  }
  // A norm that a double cannot hold is as bad as infinity, and one that is too small is zero.
  if (error == std::errc::result_out_of_range) {
    return text.find("e-") != std::string::npos || text.find("E-") != std::string::npos
               ? 0.0
               : std::numeric_limits<double>::infinity();
  }
  return norm;
}

bool ParseLabel(const Lines& lines, const std::string& text) {
  if (text != "0" && text != "1") lines.Fail(fmt::format("critical \"{}\": neither 0 nor 1", Shown(text)));
  return text == "1";
}

bool IsJsonLines(const std::string& file) {
  return file.ends_with(".jsonl") || file.ends_with(".ndjson") || file.ends_with(".json");
}

// Python writes NaN and Infinity, which JSON does not know: they become strings here.
std::string QuoteNonFinite(const std::string& line) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < line.size();) {
    if (line[i] == '"' && (i == 0 || line[i - 1] != '\\')) in_string = !in_string;
    size_t taken = 0;
    for (const std::string_view word : {"NaN", "-Infinity", "Infinity"}) {
      if (!in_string && taken == 0 && line.compare(i, word.size(), word) == 0) taken = word.size();
    }
    if (taken > 0) {
      out += '"' + std::string(line[i] == '-' ? "-inf" : line[i] == 'I' ? "inf" : "nan") + '"';
      i += taken;
    } else {
      out += line[i++];
    }
  }
  return out;
}

json ParseObject(const Lines& lines, const std::string& line, const char* field) {
  json object = json::parse(QuoteNonFinite(line), nullptr, false);
  if (!object.is_object()) lines.Fail("not a JSON object on a line of its own");
  if (!object.contains("step")) lines.Fail("the object has no \"step\"");
  if (!object["step"].is_number_unsigned()) lines.Fail("\"step\" is not a step number (digits, from 0)");
  if (!object.contains(field) && !(std::string_view(field) == "norm" && object.contains("norms"))) {
    lines.Fail(fmt::format("the object has no \"{}\"", field));
  }
  return object;
}

double NormOfJson(const Lines& lines, const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_null()) return std::nan("");
  if (value.is_string()) return ParseNorm(lines, value.get<std::string>());
  lines.Fail(fmt::format("norm {}: not a number", Shown(value.dump())));
}

NormRow NormsOfJson(const Lines& lines, const std::string& line) {
  const json object = ParseObject(lines, line, "norm");
  NormRow row{object["step"].get<uint64_t>(), {}};
  if (object.contains("norm")) {
    row.norms.push_back(NormOfJson(lines, object["norm"]));
  } else if (object["norms"].is_array()) {
    for (const json& norm : object["norms"]) row.norms.push_back(NormOfJson(lines, norm));
  }
  if (row.norms.empty()) lines.Fail("\"norms\" is not a list of numbers, one a layer");
  return row;
}

// The columns of the header, which must begin with "step" and go on with `second`.
size_t CheckHeader(const Lines& lines, const std::string& line, const std::string& second, bool more) {
  const std::vector<std::string> names = SplitRow(line);
  bool good = names.size() >= 2 && names[0] == "step" && (more || names.size() == 2);
  for (size_t i = 1; good && i < names.size(); ++i) {
    good = more && names.size() > 2 ? names[i].starts_with(second) : names[i] == second;
  }
  if (!good) {
    lines.Fail(fmt::format("the header is \"{}\"; it must be step,{}{}", Shown(Trim(line)), second,
                           more ? " (or step,norm_0,norm_1,... with a column a layer)" : ""));
  }
  return names.size();
}

std::vector<std::string> CheckedRow(const Lines& lines, const std::string& line, size_t columns) {
  std::vector<std::string> cells = SplitRow(line);
  if (cells.size() != columns) {
    lines.Fail(fmt::format("{} values where the header has {} columns", cells.size(), columns));
  }
  return cells;
}

}  // namespace

std::vector<NormRow> ReadNorms(const std::string& file) {
  Lines lines(file);
  const bool as_json = IsJsonLines(file);
  std::vector<NormRow> rows;
  size_t columns = 0;
  for (std::string line; lines.Next(&line);) {
    if (!as_json && columns == 0) {
      columns = CheckHeader(lines, line, "norm", true);
      continue;
    }
    NormRow row;
    if (as_json) {
      row = NormsOfJson(lines, line);
    } else {
      const std::vector<std::string> cells = CheckedRow(lines, line, columns);
      row.step = ParseStep(lines, cells[0]);
      for (size_t i = 1; i < cells.size(); ++i) row.norms.push_back(ParseNorm(lines, cells[i]));
    }
    if (!rows.empty() && row.step <= rows.back().step) {
      lines.Fail(fmt::format("step {} after step {}: step numbers must rise", row.step, rows.back().step));
    }
    if (!rows.empty() && row.norms.size() != rows.back().norms.size()) {
      lines.Fail(fmt::format("{} norms where the rows before have {}", row.norms.size(), rows.back().norms.size()));
    }
    rows.push_back(std::move(row));
  }
  if (rows.empty()) throw InputError(fmt::format("{}: holds no step", file));
  return rows;
}

std::map<uint64_t, bool> ReadLabels(const std::string& file) {
  Lines lines(file);
  const bool as_json = IsJsonLines(file);
  std::map<uint64_t, bool> labels;
  size_t columns = 0;
  for (std::string line; lines.Next(&line);) {
    if (!as_json && columns == 0) {
      columns = CheckHeader(lines, line, "critical", false);
      continue;
    }
    uint64_t step = 0;
    bool critical = false;
    if (as_json) {
      const json object = ParseObject(lines, line, "critical");
      const json& value = object["critical"];
      step = object["step"].get<uint64_t>();
      critical = value.is_boolean() ? value.get<bool>() : ParseLabel(lines, value.dump());
    } else {
      const std::vector<std::string> cells = CheckedRow(lines, line, columns);
      step = ParseStep(lines, cells[0]);
      critical = ParseLabel(lines, cells[1]);
    }
    if (!labels.emplace(step, critical).second) lines.Fail(fmt::format("step {} has a label already", step));
  }
  if (labels.empty()) throw InputError(fmt::format("{}: holds no label", file));
  return labels;
}

}  // namespace forgive::replay
