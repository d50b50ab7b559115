package query

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Mask is shown in place of a value that is a credential.
const Mask = "***"

// MaskHeaders returns headers without the credentials in them.
func MaskHeaders(headers []store.Header) []store.Header {
	shown := make([]store.Header, len(headers))
	for i, h := range headers {
		if store.IsSensitiveHeader(h.Name) && h.Value != "" {
			h.Value = Mask
		}
		shown[i] = h
	}
	return shown
}

// Masked says whether a header that was given has the mask for a credential. It must not be kept: the caller
// saw the mask and sent it back.
func Masked(h store.Header) bool { return h.Value == Mask && store.IsSensitiveHeader(h.Name) }

// SafeCell keeps a text that a sender wrote from being a formula where a CSV file is opened.
func SafeCell(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}
