package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

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
	listAttempts  byte = 'm'
)

const (
	// cursorKeyBytes is the length of the key, macLength how many bytes of a signature end a cursor.
	cursorKeyBytes = 32
	macLength      = 16
	// maxCursorID bounds the bytes of a row's id in a cursor. The longest is a lane's key, of some 300
	// characters.
	maxCursorID = 2048
)

var errCursor = errors.New("is not a cursor of this list in this project")

// A cursorSigner makes and reads the cursors of one project. They are signed, so that no text of a caller's
// making is asked of SQL.
type cursorSigner struct {
	key     []byte
	project string
}

// listQuery parses the query of a list, whose cursors are of the caller's project.
func (a *API) listQuery(ctx context.Context, c *gin.Context, who caller) (*query, error) {
	q, err := parseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	q.cursors = cursorSigner{project: who.project}
	q.cursors.key, err = a.cursorKey(ctx)
	return q, err
}

// cursorKey returns the key that signs cursors, which is asked for until there is one. Without it lists
// cannot be read, as without SQL.
func (a *API) cursorKey(ctx context.Context) ([]byte, error) {
	if key := a.knownCursorKey.Load(); key != nil {
		return *key, nil
	}
	key, err := a.Engine.CursorKey(ctx)
	if err == nil && len(key) != cursorKeyBytes {
		err = fmt.Errorf("it has %d bytes, not %d", len(key), cursorKeyBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read the key of cursors: %w", store.ErrUnavailable, err)
	}
	a.knownCursorKey.Store(&key)
	return key, nil
}

// encode makes the text that continues a list after a row.
func (s cursorSigner) encode(list byte, after store.Cursor) string {
	b := append(make([]byte, 0, 1+8+26+macLength), list)
	b = binary.BigEndian.AppendUint64(b, uint64(after.DueAt))
	return s.sealed(append(b, after.ID...))
}

// decode reads what encode made for the same list.
func (s cursorSigner) decode(list byte, text string) (store.Cursor, error) {
	b, err := s.unsealed(list, text)
	if err != nil || len(b) < 8 {
		return store.Cursor{}, errCursor
	}
	after := store.Cursor{DueAt: int64(binary.BigEndian.Uint64(b)), ID: string(b[8:])}
	if !isIDOf(list, after.ID) {
		return store.Cursor{}, errCursor
	}
	return after, nil
}

// isIDOf says whether rows of the list can have the id. A signed cursor has such a one as long as the key is
// secret.
func isIDOf(list byte, id string) bool {
	switch list {
	case listLanes, listProjects, listPolicies, listRules, listProfiles:
		_, wrong := checkText(id, false)
		return wrong == "" && id != "" && len(id) <= maxCursorID
	}
	_, ok := store.BareID("", id)
	return ok
}

// encodeOutcome makes the text that continues the feed of outcomes.
func (s cursorSigner) encodeOutcome(after store.OutcomeCursor) string {
	b := append(make([]byte, 0, 1+3*8+macLength), listOutcomes)
	for _, n := range [...]int64{after.Tx, after.Group, int64(after.Item)} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return s.sealed(b)
}

// decodeOutcome reads what encodeOutcome made.
func (s cursorSigner) decodeOutcome(text string) (store.OutcomeCursor, error) {
	b, err := s.unsealed(listOutcomes, text)
	if err != nil || len(b) != 3*8 {
		return store.OutcomeCursor{}, errCursor
	}
	part := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[8*i:])) }
	return store.OutcomeCursor{Tx: part(0), Group: part(1), Item: int(part(2))}, nil
}

// mac signs the bytes of a cursor for the project. The project's length keeps the two apart.
func (s cursorSigner) mac(b []byte) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s.project))))
	h.Write([]byte(s.project))
	h.Write(b)
	return h.Sum(nil)[:macLength]
}

// sealed returns the bytes of a cursor as text, with their signature.
func (s cursorSigner) sealed(b []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(b, s.mac(b)...))
}

// unsealed returns the bytes of a cursor of the list, without what says which list that is.
func (s cursorSigner) unsealed(list byte, text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, errCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 1+macLength || b[0] != list {
		return nil, errCursor
	}
	body, mac := b[:len(b)-macLength], b[len(b)-macLength:]
	if !hmac.Equal(mac, s.mac(body)) {
		return nil, errCursor
	}
	return body[1:], nil
}

// pageOf cuts a page out of a list that is short enough to be read whole. at is the cursor of a row, and
// order how those of the list are sorted. A cursor names the last row of a page and not how many there were,
// so that rows which come and go between two pages shift nothing.
func pageOf[T any](
	s cursorSigner, list byte, all []T, limit int, after *store.Cursor,
	at func(row *T) store.Cursor, order func(a, b store.Cursor) int,
) (page []T, next string) {
	if after != nil {
		begin := slices.IndexFunc(all, func(row T) bool { return order(at(&row), *after) > 0 })
		if begin < 0 {
			return nil, ""
		}
		all = all[begin:]
	}
	if len(all) <= limit {
		return all, ""
	}
	return all[:limit], s.encode(list, at(&all[limit-1]))
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
