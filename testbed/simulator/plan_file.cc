// SPDX-License-Identifier: Apache-2.0
// TOML files to plans, with the line of whatever is wrong.
#include "testbed/simulator/plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "testbed/entry_lib/plain_toml.h"
#include "testbed/entry_lib/toml_plus_plus.h"
#include "testbed/simulator/plan_keys.h"

namespace forgive::sim {
namespace {

constexpr int kDeepestBase = 8;

// Whether a top-level key holds parts of a plan.
bool IsSection(std::string_view name) {
  return name == "fabric" || name == "workload" || name == "policy" || name == "transport" || name == "job2";
}

[[noreturn]] void Fail(const std::string& file, const toml::node& node, const std::string& what) {
  throw PlanError(fmt::format("{}:{}: {}", file, node.source().begin.line, what));
}

struct File {
  std::string path;
  toml::table table;
};

File ReadFile(const std::string& folder, const std::string& name) {
  File file;
  file.path = name.ends_with(".toml") ? name : (std::filesystem::path(folder) / (name + ".toml")).string();
  std::ifstream stream(file.path);
  if (!stream) {
    throw PlanError(
        fmt::format("plan {}: there is no {}; `forgive_sim list` shows the plans, --plans names another "
                    "folder",
                    name, file.path));
  }
  std::ostringstream text;
  text << stream.rdbuf();
  const size_t line = LineBeyondAscii(text.view());
  if (line != 0) throw PlanError(fmt::format("{}:{}: {}", file.path, line, kNotPlainToml));
  try {
    file.table = toml::parse(text.view(), file.path);
  } catch (const toml::parse_error& error) {
    throw PlanError(fmt::format("{}:{}: {}", file.path, error.source().begin.line, error.description()));
  }
  return file;
}

PlanValue ValueOf(const File& file, const std::string& key, const toml::node& node) {
  PlanValue value;
  std::ostringstream text;
  if (const auto* flag = node.as_boolean()) {
    value.value = flag->get();
    text << (flag->get() ? "true" : "false");
  } else if (const auto* whole = node.as_integer()) {
    value.value = whole->get();
    text << whole->get();
  } else if (const auto* real = node.as_floating_point()) {
    value.value = real->get();
    text << real->get();
  } else if (const auto* word = node.as_string()) {
    value.value = word->get();
    text << '"' << word->get() << '"';
  } else if (const auto* list = node.as_array()) {
    std::vector<int64_t> numbers;
    for (const toml::node& item : *list) {
      const auto* number = item.as_integer();
      if (number == nullptr) Fail(file.path, item, fmt::format("{}: allowed is a list of whole numbers", key));
      numbers.push_back(number->get());
    }
    value.value = numbers;
    text << *list;
  } else {
    Fail(file.path, node, fmt::format("{}: a date is no value of a plan", key));
  }
  value.text = text.str();
  return value;
}

// A link failure: the one thing of a plan that is not one value.
void ApplyFailures(const File& file, const toml::node& node, Plan* plan) {
  const toml::array* list = node.as_array();
  if (list == nullptr) Fail(file.path, node, "fabric.link_failures: write [[fabric.link_failures]] tables");
  plan->fabric.link_failures.clear();
  for (const toml::node& item : *list) {
    const toml::table* table = item.as_table();
    if (table == nullptr) Fail(file.path, item, "fabric.link_failures: write [[fabric.link_failures]] tables");
    LinkFailure failure;
    for (const auto& [key, value] : *table) {
      const auto number = value.as_integer();
      const std::string_view name = key.str();
      if (number == nullptr || number->get() < 0) {
        Fail(file.path, value, fmt::format("fabric.link_failures.{}: allowed is a whole number from 0", name));
      }
      const int64_t given = number->get();
      if (name == "leaf") {
        failure.leaf = static_cast<uint32_t>(given);
      } else if (name == "spine") {
        failure.spine = static_cast<uint32_t>(given);
      } else if (name == "from_us") {
        failure.from = SimTime{given * 1000000};
      } else if (name == "until_us") {
        failure.until = SimTime{given * 1000000};
      } else {
        Fail(file.path, value,
             fmt::format("unknown key fabric.link_failures.{}: there are leaf, spine, from_us, "
                         "until_us",
                         name));
      }
    }
    plan->fabric.link_failures.push_back(failure);
  }
}

void ApplyTable(const File& file, const std::string& prefix, const toml::table& table, Plan* plan) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (name == "fabric.link_failures") {
      ApplyFailures(file, node, plan);
      continue;
    }
    if (const toml::table* inner = node.as_table()) {
      ApplyTable(file, name + ".", *inner, plan);
      continue;
    }
    std::string wrong;
    try {
      wrong = FindKey(KeysOf(plan), name).set(ValueOf(file, name, node));
    } catch (const PlanError& error) {
      const std::string what = error.what();
      if (what.starts_with(file.path)) throw;
      Fail(file.path, node, what);
    }
    if (!wrong.empty()) Fail(file.path, node, wrong);
  }
}

// The sections of a table: a second job begins as the first one is by then.
void ApplySections(const File& file, const toml::table& table, Plan* plan) {
  const auto apply = [&](bool second_job) {
    for (const auto& [key, node] : table) {
      if (!IsSection(key.str()) || (key.str() == "job2") != second_job) continue;
      const toml::table* section = node.as_table();
      if (section == nullptr) Fail(file.path, node, fmt::format("{} is a section: write [{}]", key.str(), key.str()));
      if (second_job && !plan->job2) plan->job2 = plan->job;
      ApplyTable(file, std::string(key.str()) + ".", *section, plan);
    }
  };
  apply(false);
  apply(true);
}

void CheckTopLevel(const File& file) {
  for (const auto& [key, node] : file.table) {
    const std::string_view name = key.str();
    if (IsSection(name) || name == "about" || name == "base" || name == "include" || name == "seeds" ||
        name == "variants") {
      continue;
    }
    Fail(file.path, node,
         fmt::format("unknown key {}: there are about, base, include, seeds, fabric, workload, policy, transport, "
                     "job2, variants",
                     name));
  }
}

std::string TextOf(const File& file, const toml::table& table, const char* key) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return "";
  const auto* text = node->as_string();
  if (text == nullptr) Fail(file.path, *node, fmt::format("{}: allowed is a text in quotes", key));
  return text->get();
}

void ApplyBase(const std::string& folder, const std::string& name, int depth, Plan* plan) {
  const File file = ReadFile(folder, name);
  CheckTopLevel(file);
  const std::string base = TextOf(file, file.table, "base");
  if (!base.empty()) {
    if (depth == 0)
      throw PlanError(fmt::format("{}: base: bases go in a circle, or more than {} deep", file.path, kDeepestBase));
    ApplyBase(std::filesystem::path(file.path).parent_path().string(), base, depth - 1, plan);
  }
  ApplySections(file, file.table, plan);
}

const toml::table* VariantOf(const File& file, const std::string& variant) {
  const toml::table* variants = file.table["variants"].as_table();
  if (variants == nullptr) return nullptr;
  const toml::node* node = variants->get(variant);
  return node == nullptr ? nullptr : node->as_table();
}

std::vector<uint64_t> SeedsOf(const File& file) {
  const toml::node* node = file.table.get("seeds");
  if (node == nullptr) return {1};
  std::vector<uint64_t> seeds;
  if (const toml::array* list = node->as_array()) {
    for (const toml::node& item : *list) {
      const auto* number = item.as_integer();
      if (number == nullptr || number->get() < 0) Fail(file.path, item, "seeds: allowed are whole numbers from 0");
      seeds.push_back(static_cast<uint64_t>(number->get()));
    }
  }
  if (seeds.empty()) Fail(file.path, *node, "seeds: allowed is a list of whole numbers from 0");
  return seeds;
}

std::vector<std::string> IncludesOf(const File& file) {
  std::vector<std::string> names;
  const toml::node* node = file.table.get("include");
  if (node == nullptr) return names;
  const toml::array* list = node->as_array();
  if (list == nullptr) Fail(file.path, *node, "include: allowed is a list of families");
  for (const toml::node& item : *list) {
    const auto* text = item.as_string();
    if (text == nullptr) Fail(file.path, item, "include: allowed is a list of families");
    names.push_back(text->get());
  }
  return names;
}

// "family/variant" in two; of a path the part behind ".toml/".
void SplitName(const std::string& name, std::string* family, std::string* variant) {
  const size_t file = name.find(".toml");
  const size_t slash = file != std::string::npos ? name.find('/', file) : name.find('/');
  *family = name.substr(0, slash);
  *variant = slash == std::string::npos ? "" : name.substr(slash + 1);
}

}  // namespace

Family ReadFamily(const std::string& folder, const std::string& name) {
  const File file = ReadFile(folder, name);
  CheckTopLevel(file);
  Family family;
  family.name = name;
  family.file = file.path;
  family.about = TextOf(file, file.table, "about");
  family.include = IncludesOf(file);
  family.seeds = SeedsOf(file);
  if (const toml::node* node = file.table.get("variants")) {
    const toml::table* variants = node->as_table();
    if (variants == nullptr) Fail(file.path, *node, "variants: write [variants.NAME] sections");
    for (const auto& [key, value] : *variants) {
      const toml::table* table = value.as_table();
      if (table == nullptr)
        Fail(file.path, value, fmt::format("variants.{}: write a [variants.{}] section", key.str(), key.str()));
      for (const auto& [part, inner] : *table) {
        if (part.str() != "about" && !IsSection(part.str())) {
          Fail(file.path, inner,
               fmt::format("unknown key variants.{}.{}: there are about, fabric, workload, policy, "
                           "transport, job2",
                           key.str(), part.str()));
        }
      }
      family.variants.push_back({std::string(key.str()), TextOf(file, *table, "about")});
    }
  }
  return family;
}

std::vector<Family> ReadFamilies(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  if (error) throw PlanError(fmt::format("--plans {}: {}", folder, error.message()));
  std::sort(names.begin(), names.end());
  std::vector<Family> families;
  for (const std::string& name : names) families.push_back(ReadFamily(folder, name));
  return families;
}

Plan ReadPlan(const std::string& folder, const std::string& name, const std::vector<std::string>& assignments,
              double scale) {
  std::string family_name;
  std::string variant;
  SplitName(name, &family_name, &variant);
  const Family family = ReadFamily(folder, family_name);
  Plan plan;
  plan.family = std::filesystem::path(family.file).stem().string();
  plan.variant = variant;
  plan.about = family.about;
  ApplyBase(folder, family_name, kDeepestBase, &plan);
  if (!variant.empty() || !family.variants.empty()) {
    const File file = ReadFile(folder, family_name);
    const toml::table* table = VariantOf(file, variant);
    if (table == nullptr) {
      std::string all;
      for (const Family::Variant& one : family.variants) all += (all.empty() ? "" : ", ") + one.name;
      throw PlanError(
          fmt::format("plan {}: {} has {}", name, file.path, all.empty() ? "no variants" : "the variants " + all));
    }
    const std::string about = TextOf(file, *table, "about");
    if (!about.empty()) plan.about = about;
    ApplySections(file, *table, &plan);
  }
  for (const std::string& assignment : assignments) SetKey(&plan, assignment);
  try {
    if (scale != 1) ScalePlan(&plan, scale);
    ValidatePlan(plan);
  } catch (const PlanError& error) {
    throw PlanError(fmt::format("plan {} ({}): {}", name, family.file, error.what()));
  }
  return plan;
}

}  // namespace forgive::sim
