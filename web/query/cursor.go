package query

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The lists that have cursors. A cursor of one list is not valid in another.
const (
	ListNewest    byte = 'n'
	ListByDue     byte = 'd'
	ListAudit     byte = 'a'
	ListEndpoints byte = 'e'
	ListLanes     byte = 'l'
	ListProjects  byte = 'p'
	ListKeys      byte = 'k'
	ListPolicies  byte = 't'
	ListRules     byte = 's'
	ListProfiles  byte = 'f'
	ListRedrives  byte = 'r'
	ListOutcomes  byte = 'o'
	ListSchedules byte = 'c'
	ListAttempts  byte = 'm'
	ListAlerts    byte = 'w'
	ListReports   byte = 'y'
	ListFindings  byte = 'z'
)

const (
	// CursorKeyBytes is the length of the key. macLength is the length of the signature at the end of a
	// cursor.
	CursorKeyBytes = 32
	macLength      = 16
	// maxCursorID is the maximum length of an id in a cursor, in bytes. The longest id is a lane key of about
	// 300 characters.
	maxCursorID = 2048
)

// ErrCursor is the error of a cursor that is changed, or belongs to another list or project.
var ErrCursor = errors.New("is not a cursor of this list in this project; start without a cursor")

// A Cursors writes and reads the cursors of one project. Cursors are signed, so a text that a caller invents
// never reaches SQL.
type Cursors struct {
	Key     []byte
	Project string
}

// Encode returns the cursor that continues a list after a row.
func (s Cursors) Encode(list byte, after store.Cursor) string {
	b := append(make([]byte, 0, 1+8+26+macLength), list)
	b = binary.BigEndian.AppendUint64(b, uint64(after.DueAt))
	return s.sealed(append(b, after.ID...))
}

// Decode reads a cursor that Encode returned for the same list.
func (s Cursors) Decode(list byte, text string) (store.Cursor, error) {
	b, err := s.unsealed(list, text)
	if err != nil || len(b) < 8 {
		return store.Cursor{}, ErrCursor
	}
	after := store.Cursor{DueAt: int64(binary.BigEndian.Uint64(b)), ID: string(b[8:])}
	if !isIDOf(list, after.ID) {
		return store.Cursor{}, ErrCursor
	}
	return after, nil
}

// isIDOf reports whether a row of the list can have the id. With a valid signature it always can, unless the
// key has leaked.
func isIDOf(list byte, id string) bool {
	switch list {
	case ListLanes, ListProjects, ListPolicies, ListRules, ListProfiles:
		wrong := CheckText(id, false)
		return wrong == "" && id != "" && len(id) <= maxCursorID
	}
	_, ok := store.BareID("", id)
	return ok
}

// EncodeOutcome returns the cursor that continues the list of outcomes.
func (s Cursors) EncodeOutcome(after store.OutcomeCursor) string {
	b := append(make([]byte, 0, 1+3*8+macLength), ListOutcomes)
	for _, n := range [...]int64{after.Tx, after.Group, int64(after.Item)} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return s.sealed(b)
}

// DecodeOutcome reads a cursor that EncodeOutcome returned.
func (s Cursors) DecodeOutcome(text string) (store.OutcomeCursor, error) {
	b, err := s.unsealed(ListOutcomes, text)
	if err != nil || len(b) != 3*8 {
		return store.OutcomeCursor{}, ErrCursor
	}
	part := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) }
	return store.OutcomeCursor{Tx: part(0), Group: part(1), Item: int(part(2))}, nil
}

// mac signs the bytes of a cursor for the project. It includes the project's length, so that the end of the
// project name cannot pass for the beginning of the bytes.
func (s Cursors) mac(b []byte) []byte {
	h := hmac.New(sha256.New, s.Key)
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s.Project))))
	h.Write([]byte(s.Project))
	h.Write(b)
	return h.Sum(nil)[:macLength]
}

// sealed returns the bytes of a cursor and their signature as text.
func (s Cursors) sealed(b []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(b, s.mac(b)...))
}

// unsealed verifies a cursor of the list, and returns its bytes without the list's letter.
func (s Cursors) unsealed(list byte, text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, ErrCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 1+macLength || b[0] != list {
		return nil, ErrCursor
	}
	body, mac := b[:len(b)-macLength], b[len(b)-macLength:]
	if !hmac.Equal(mac, s.mac(body)) {
		return nil, ErrCursor
	}
	return body[1:], nil
}

// Cut returns a page of at most limit rows, from rows that were read with limit+1. last is the last row of
// the page if another page follows, otherwise nil.
func Cut[T any](rows []T, limit int) (page []T, last *T) {
	if len(rows) <= limit {
		return rows, nil
	}
	return rows[:limit], &rows[limit-1]
}

// Place writes the position at which a list of the UI continues: the due time, for lists in that order, and
// the id. It is not signed: each list shows only the viewer's project, and ReadPlace accepts only valid ids.
func Place(c store.Cursor) string { return strconv.FormatInt(c.DueAt, 36) + "." + c.ID }

// ReadPlace reads the output of Place. It returns nil for other texts.
func ReadPlace(text string) *store.Cursor {
	due, id, _ := strings.Cut(text, ".")
	at, err := strconv.ParseInt(due, 36, 64)
	if _, ok := store.BareID("", id); !ok || err != nil {
		return nil
	}
	return &store.Cursor{DueAt: at, ID: id}
}
