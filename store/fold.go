package store

import (
	"strings"
	"unicode"
)

// Fold returns text as searches compare it, without regard to case. Each letter stands for itself in upper
// and lower case, in every script: Ä and ä, Σ, σ and ς, İ, I, ı and i are one each. No letter becomes two, so
// ß is not ss. Databases fold by rules of their own, which differ with their collation, so what they search
// was folded here.
func Fold(s string) string {
	return strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, s)
}
