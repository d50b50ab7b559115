package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The lists that have cursors. A cursor of one is not valid in another.
const (
	listNewest    byte = 'n'
	listByDue     byte = 'd'
	listAudit     byte = 'a'
	listEndpoints byte = 'e'
	listLanes     byte = 'l'
	listProjects  byte = 'p'
	listKeys      byte = 'k'
	listPolicies  byte = 't'
	listRules     byte = 's'
	listProfiles  byte = 'f'
	listRedrives  byte = 'r'
)

// sumLength is how many bytes of a hash end a cursor, so that a damaged or invented one is noticed. It is no
// signature: a cursor says where a page begins, and a caller can see every page of the list.
const sumLength = 6

var errCursor = errors.New("is not a cursor of this list")

// encodeCursor makes the text that continues a list after a row.
func encodeCursor(list byte, after store.Cursor) string {
	b := append(make([]byte, 0, 1+8+26+sumLength), list)
	b = binary.BigEndian.AppendUint64(b, uint64(after.DueAt))
	b = append(b, after.ID...)
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:sumLength]...))
}

// decodeCursor reads what encodeCursor made for the same list.
func decodeCursor(list byte, s string) (store.Cursor, error) {
	if strings.ContainsAny(s, "\r\n") {
		return store.Cursor{}, errCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 1+8+sumLength || b[0] != list {
		return store.Cursor{}, errCursor
	}
	body, tail := b[:len(b)-sumLength], b[len(b)-sumLength:]
	sum := sha256.Sum256(body)
	if string(sum[:sumLength]) != string(tail) {
		return store.Cursor{}, errCursor
	}
	return store.Cursor{DueAt: int64(binary.BigEndian.Uint64(body[1:9])), ID: string(body[9:])}, nil
}

// pageOf cuts a page out of a list that is short enough to be read whole. Its cursor is a place in the list.
func pageOf[T any](list byte, all []T, limit int, after *store.Cursor) (page []T, next string) {
	begin := 0
	if after != nil {
		begin = int(min(max(after.DueAt, 0), int64(len(all))))
	}
	end := min(begin+limit, len(all))
	if end < len(all) {
		next = encodeCursor(list, store.Cursor{DueAt: int64(end)})
	}
	return all[begin:end], next
}

// appendNext ends a list: its array's bracket, and next_cursor.
func appendNext(b []byte, next string) []byte {
	b = append(b, `],"next_cursor":`...)
	if next == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, next)
	}
	return append(b, '}')
}
