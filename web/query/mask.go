package query

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Mask replaces a credential in responses.
const Mask = "***"

// MaskHeaders returns headers with their credentials masked.
func MaskHeaders(headers []store.Header) []store.Header {
	masked := make([]store.Header, len(headers))
	for i, h := range headers {
		if store.IsSensitiveHeader(h.Name) && h.Value != "" {
			h.Value = Mask
		}
		masked[i] = h
	}
	return masked
}

// Masked reports whether the value of a header with a credential is the mask. Such a value must not be
// stored: the caller got it from a response and sent it back.
func Masked(h store.Header) bool { return h.Value == Mask && store.IsSensitiveHeader(h.Name) }

// SafeCell escapes a text from a sender so that a spreadsheet does not read it as a formula.
func SafeCell(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}
