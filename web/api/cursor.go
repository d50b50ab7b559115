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
	listOutcomes  byte = 'o'
	listSchedules byte = 'c'
)

// sumLength is how many bytes of a hash end a cursor, so that a damaged or invented one is noticed. It is no
// signature: a cursor says where a page begins, and a caller can see every page of the list.
const sumLength = 6

var errCursor = errors.New("is not a cursor of this list")

// encodeCursor makes the text that continues a list after a row.
func encodeCursor(list byte, after store.Cursor) string {
	b := append(make([]byte, 0, 1+8+26+sumLength), list)
	b = binary.BigEndian.AppendUint64(b, uint64(after.DueAt))
	return sealed(append(b, after.ID...))
}

// decodeCursor reads what encodeCursor made for the same list.
func decodeCursor(list byte, s string) (store.Cursor, error) {
	b, err := unsealed(list, s)
	if err != nil || len(b) < 8 {
		return store.Cursor{}, errCursor
	}
	return store.Cursor{DueAt: int64(binary.BigEndian.Uint64(b)), ID: string(b[8:])}, nil
}

// encodeOutcomeCursor makes the text that continues the feed of outcomes.
func encodeOutcomeCursor(after store.OutcomeCursor) string {
	b := append(make([]byte, 0, 1+3*8+sumLength), listOutcomes)
	for _, n := range [...]int64{after.Tx, after.Group, int64(after.Item)} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return sealed(b)
}

// decodeOutcomeCursor reads what encodeOutcomeCursor made.
func decodeOutcomeCursor(s string) (store.OutcomeCursor, error) {
	b, err := unsealed(listOutcomes, s)
	if err != nil || len(b) != 3*8 {
		return store.OutcomeCursor{}, errCursor
	}
	part := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) }
	return store.OutcomeCursor{Tx: part(0), Group: part(1), Item: int(part(2))}, nil
}

// sealed returns the bytes of a cursor as text, with their sum.
func sealed(b []byte) string {
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:sumLength]...))
}

// unsealed returns the bytes of a cursor of the list, without what says which list that is.
func unsealed(list byte, s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, errCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 1+sumLength || b[0] != list {
		return nil, errCursor
	}
	body, tail := b[:len(b)-sumLength], b[len(b)-sumLength:]
	if sum := sha256.Sum256(body); string(sum[:sumLength]) != string(tail) {
		return nil, errCursor
	}
	return body[1:], nil
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
