package store

import "strings"

// BareID takes the prefix from an id as callers write it, and says whether the rest is a ULID as this program writes them: 26 characters of
// Crockford's base 32, in upper case.
func BareID(prefix, s string) (string, bool) {
	id, ok := strings.CutPrefix(s, prefix)
	if !ok || len(id) != 26 || id[0] > '7' {
		return "", false
	}
	for i := range len(id) {
		if strings.IndexByte("0123456789ABCDEFGHJKMNPQRSTVWXYZ", id[i]) < 0 {
			return "", false
		}
	}
	return id, true
}
