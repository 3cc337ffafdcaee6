// Text made safe to show: the rule of common/printable.py.
// Every character that is not visible is written as an escape such as \x1b, \u202e or \n.

const NAMED = { "\n": "\\n", "\t": "\\t", "\r": "\\r" };
const INVISIBLE =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u034F\u115F\u1160\u17B4\u17B5\u180B-\u180F\u3164\uFFA0\u{E0100}-\u{E01EF}]/gu;

function escapeCharacter(character) {
  if (NAMED[character]) return NAMED[character];
  let code = character.codePointAt(0);
  if (code >= 0xdc80 && code <= 0xdcff) code -= 0xdc00; // a byte of a file name that is not UTF-8
  const digits = code.toString(16);
  if (code < 0x100) return "\\x" + digits.padStart(2, "0");
  return code < 0x10000 ? "\\u" + digits.padStart(4, "0") : "\\U" + digits.padStart(8, "0");
}

export function printable(text, keep = "") {
  return String(text).replace(INVISIBLE, (character) => (keep.includes(character) ? character : escapeCharacter(character)));
}

// Text of several lines: line breaks and tabs stay.
export function printableLines(text) {
  return printable(text, "\n\t");
}
