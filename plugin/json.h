// SPDX-License-Identifier: Apache-2.0
// Writes one JSON object a line, for the statistics file.
#ifndef FORGIVE_PLUGIN_JSON_H_
#define FORGIVE_PLUGIN_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace forgive {

// Builds text from front to back. Objects and arrays are closed in the order in which they were opened.
class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& BeginObject(std::string_view key) { return Key(key).OpenHere('{'); }
  JsonWriter& BeginArray(std::string_view key) { return Key(key).OpenHere('['); }
  JsonWriter& EndObject() { return CloseWith('}'); }
  JsonWriter& EndArray() { return CloseWith(']'); }

  JsonWriter& Text(std::string_view key, std::string_view value) {
    Key(key);
    Quote(value);
    return *this;
  }
  JsonWriter& Number(std::string_view key, uint64_t value) {
    Key(key);
    text_ += std::to_string(value);
    return *this;
  }
  JsonWriter& Boolean(std::string_view key, bool value) {
    Key(key);
    text_ += value ? "true" : "false";
    return *this;
  }

  const std::string& text() const { return text_; }

 private:
  JsonWriter& Open(char bracket) {
    Separate();
    return OpenHere(bracket);
  }
  JsonWriter& OpenHere(char bracket) {
    text_ += bracket;
    return *this;
  }
  JsonWriter& CloseWith(char bracket) {
    text_ += bracket;
    return *this;
  }
  JsonWriter& Key(std::string_view key) {
    Separate();
    Quote(key);
    text_ += ':';
    return *this;
  }
  void Separate() {
    if (!text_.empty() && text_.back() != '{' && text_.back() != '[' && text_.back() != ':') text_ += ',';
  }
  void Quote(std::string_view value);

  std::string text_;
};

}  // namespace forgive

#endif  // FORGIVE_PLUGIN_JSON_H_
