// SPDX-License-Identifier: MIT
// The formats that strings are held to.
#include <string.h>

#include "grammar/regex.h"
#include "grammar/schema.h"

#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                      \
  "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))" \
  "|" LEAP "-02-29)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?"
#define ZONE "(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 BYTE "\\." BYTE "\\." BYTE "\\." BYTE
#define H16 "[0-9A-Fa-f]{1,4}"
// A label of a host name, with min to max characters between the fourth and the last. Labels
// with "--" in third place are of IDNA ("xn--...") and mean something only when decoded.
#define ALNUM "[A-Za-z0-9]"
#define LDH "[A-Za-z0-9-]"
#define LONG_LABEL(min, max) ALNUM LDH "(?:" ALNUM LDH "|-" ALNUM ")" LDH "{" #min "," #max "}" ALNUM
#define SHORT_LABEL(max) "(?:" ALNUM "(?:" LDH "{0,2}" ALNUM ")?|" LONG_LABEL(0, max) ")"
#define LABEL SHORT_LABEL(58)
#define UNCOUNTED_LABEL SHORT_LABEL()
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define LOCAL ATEXT "(?:\\." ATEXT ")*"
#define H16S(min, max) "(?:" H16 ":){" #min "," #max "}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
// RFC 3986's IPv6address: the "::" stands for at least one group of 16 bits.
#define IPV6                                                                                                        \
  "(?:" H16S(6, 6) LS32 "|::" H16S(0, 5) LS32 "|" H16 "::" H16S(0, 4) LS32 "|" H16S(0, 1) H16 "::" H16S(0, 3) LS32    \
  "|" H16S(0, 2) H16 "::" H16S(0, 2) LS32 "|" H16S(0, 3) H16 "::" H16S(0, 1) LS32 "|" H16S(0, 4) H16 "::" LS32       \
  "|" H16S(0, 5) H16 "::" H16 "|" H16S(0, 6) H16 "::|::" H16 "|::)"
// RFC 3986; with `more` characters, and `query` ones in queries, RFC 3987.
#define PLAIN "A-Za-z0-9._~!$&'()*+,;=\\-"
#define PERCENT "%[0-9A-Fa-f]{2}"
#define PCHAR(more) "(?:[" PLAIN ":@" more "]|" PERCENT ")"
#define AUTHORITY(more) "(?:(?:[" PLAIN ":" more "]|" PERCENT ")*@)?(?:\\[(?:" IPV6 "|[Vv][0-9A-Fa-f]+\\.[" PLAIN ":]+)\\]|(?:[" PLAIN more "]|" PERCENT ")*)(?::\\d*)?"
#define AFTER_PATH(more, query) "(?:\\?(?:" PCHAR(more query) "|[/?])*)?(?:#(?:" PCHAR(more) "|[/?])*)?"
#define WITH_AUTHORITY(more) "//" AUTHORITY(more) "(?:/" PCHAR(more) "*)*"
#define ABSOLUTE(more) "/(?:" PCHAR(more) "+(?:/" PCHAR(more) "*)*)?"
#define SEGMENTS(more) "(?:/" PCHAR(more) "*)*"
#define URI(more, query) "^" SCHEME "(?:" WITH_AUTHORITY(more) "|" ABSOLUTE(more) "|" PCHAR(more) "+" SEGMENTS(more) ")?" AFTER_PATH(more, query) "$"
#define URI_REFERENCE(more, query)                                                                                          \
  "^(?:" SCHEME "(?:" WITH_AUTHORITY(more) "|" ABSOLUTE(more) "|" PCHAR(more) "+" SEGMENTS(more) ")?|" WITH_AUTHORITY(more) "|" ABSOLUTE(more) \
  "|(?:[" PLAIN "@" more "]|" PERCENT ")+" SEGMENTS(more) ")?" AFTER_PATH(more, query) "$"
#define PLANE(n) "\\u{" #n "0000}-\\u{" #n "FFFD}"
#define UCS                                                                                                    \
  "\\xA0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF" PLANE(1) PLANE(2) PLANE(3) PLANE(4) PLANE(5) PLANE(6) PLANE(7) \
  PLANE(8) PLANE(9) PLANE(A) PLANE(B) PLANE(C) PLANE(D) "\\u{E1000}-\\u{EFFFD}"
#define UCS_PRIVATE "\\uE000-\\uF8FF" PLANE(F) PLANE(10)
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]*:"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
// RFC 6570: names with values to come between braces, in a text without what URIs must not hold.
#define VARCHAR "(?:[A-Za-z0-9_]|" PERCENT ")"
#define VARSPEC VARCHAR "(?:\\.?" VARCHAR ")*(?::[1-9]\\d{0,3}|\\*)?"
#define TEMPLATE_TEXT "[!#$&-;=?-\\[\\]_a-z~" UCS UCS_PRIVATE "]|" PERCENT
#define HOST LABEL "(?:\\." LABEL ")*"
#define ADDRESS "\\[(?:" IPV4 "|IPv6:" IPV6 ")\\]"

// RFC 3339 (dates), 4122 (uuid), 5321 (e-mail; no quoted local parts, a weak model would
// not find out of them), 1123 (host names), 2673/4291 (addresses), 3986 (URIs), 3987 (IRIs), 6570 (templates), 6901 (pointers).
static const sc_format formats[] = {
    {.name = "date", .pattern = "^" DATE "$"},
    {.name = "time", .pattern = "^" TIME ZONE "$"},
    {.name = "date-time", .pattern = "^" DATE "T" TIME ZONE "$"},
    {.name = "uuid", .pattern = "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$"},
    {.name = "email", .pattern = "^" LOCAL "@(?:" HOST "|" ADDRESS ")$", .max = 254, .host = true, .before_at = "^" LOCAL "$", .or_else = "^" ADDRESS "$"},
    {.name = "hostname", .pattern = "^" HOST "$", .max = 253, .host = true},
    {.name = "ipv4", .pattern = "^" IPV4 "$"},
    {.name = "ipv6", .pattern = "^" IPV6 "$"},
    {.name = "uri", .pattern = URI("", "")},
    {.name = "uri-reference", .pattern = URI_REFERENCE("", "")},
    {.name = "iri", .pattern = URI(UCS, UCS_PRIVATE)},
    {.name = "iri-reference", .pattern = URI_REFERENCE(UCS, UCS_PRIVATE)},
    {.name = "uri-template", .pattern = "^(?:" TEMPLATE_TEXT "|\\{[+#./;?&]?" VARSPEC "(?:," VARSPEC ")*\\})*$"},
    {.name = "json-pointer", .pattern = "^" POINTER "$"},
    {.name = "relative-json-pointer", .pattern = "^(?:0|[1-9]\\d*)(?:#|" POINTER ")$"},
    {.name = "duration", .pattern = "^P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))?"
                 "|T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))$"},
};

const sc_format *sc_find_format(const char *name) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (!strcmp(name, formats[i].name)) return formats + i;
  return NULL;
}

// ---- host names --------------------------------------------------------------------------------

static mtx_cdfa *cdfa(mtx_sc *s, const char *text) {
  mtx_regex re;
  mtx_err err = {0};
  mtx_code code = mtx_regex_parse(text, strlen(text), &re, &err);
  if (code) {
    mtx_gb_fail(s->b, code, 0, "%s", err.msg);
    return NULL;
  }
  mtx_cdfa *d = mtx_regex_cdfa(&re);
  mtx_regex_fini(&re);
  return d;
}

static mtx_gx pattern(mtx_sc *s, const char *text) { return mtx_gx_dfa(s->b, cdfa(s, text), true); }

// A grammar counts one thing at a time, and here the characters of a label and those of the
// name have their limits. So a label of up to 15 takes one of 15 places of 16 characters (its
// point included), a longer one takes four: no name gets longer than 239 characters, and few
// that are shorter than 253 cannot be written.
#define PLACES 15
#define PLACES_OF_LONG 4

// Labels are counted by one automaton of few states, with the point before them: whichever
// place they take, their masks are the same, in all grammars of a vocabulary.
static mtx_gx host_name(mtx_sc *s) {
  if (s->host) return s->host;
  mtx_gb *b = s->b;
  const struct {
    uint32_t min, max;
    int places;
  } sizes[] = {{1, 15, 1}, {16, 63, PLACES_OF_LONG}};
  mtx_gx first[2], next[2], after[PLACES + 1] = {MTX_GX_NEVER}, x[2];
  for (int i = 0; i < 2; i++) {
    first[i] = mtx_gx_count(b, cdfa(s, "^" UNCOUNTED_LABEL "$"), true, sizes[i].min, sizes[i].max);
    next[i] = mtx_gx_count(b, cdfa(s, "^\\." UNCOUNTED_LABEL "$"), true, sizes[i].min + 1, sizes[i].max + 1);
  }
  for (int left = 1; left <= PLACES; left++) {
    for (int i = 0; i < 2; i++) {
      const int then = left - sizes[i].places;
      x[i] = then < 0 ? MTX_GX_NEVER : mtx_gx_cat2(b, left == PLACES ? first[i] : next[i], mtx_gx_rep(b, after[then], 0, 1));
    }
    after[left] = mtx_gx_ref(b, mtx_gb_rule_of(b, mtx_gx_alt(b, x, 2), "host name"));
  }
  return s->host = after[PLACES];
}

mtx_gx sc_host_format(mtx_sc *s, const sc_format *f) {
  if (!f->host) return MTX_GX_NEVER;
  mtx_gb *b = s->b;
  mtx_gx x = host_name(s);
  if (f->or_else) x = mtx_gx_alt2(b, x, pattern(s, f->or_else));
  if (!f->before_at) return x;
  mtx_gx name = mtx_gx_ref(b, mtx_gb_rule_of(b, pattern(s, f->before_at), "name before @"));
  return mtx_gx_cat(b, (mtx_gx[]){name, mtx_gx_lit(b, "@", 1), x}, 3);
}
