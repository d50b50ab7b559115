package api

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func cursorAt(due int64) store.Cursor {
	return store.Cursor{DueAt: due, ID: "01JD6QZ0000000000000000001"}
}

func TestCursorComesBackAndTamperingIsSeen(t *testing.T) {
	t.Parallel()
	for _, due := range []int64{0, 1, 1795248000000, -1} {
		s := encodeCursor(listByDue, cursorAt(due))
		got, err := decodeCursor(listByDue, s)
		if err != nil || got != cursorAt(due) {
			t.Errorf("due %d: got %v, %v", due, got, err)
		}
		if _, err := decodeCursor(listNewest, s); err == nil {
			t.Errorf("due %d: the cursor of one list is taken by another", due)
		}
		for i := range s {
			for _, c := range []byte("A_7") {
				if s[i] == c {
					continue
				}
				bad := s[:i] + string(c) + s[i+1:]
				if _, err := decodeCursor(listByDue, bad); err == nil {
					t.Errorf("tampered cursor %q is taken", bad)
				}
			}
		}
		for _, bad := range []string{"", s + "A", s + "\n", s[1:], s + "=", "!"} {
			if _, err := decodeCursor(listByDue, bad); err == nil {
				t.Errorf("cursor %q is taken", bad)
			}
		}
	}
}

func TestOutcomeCursorComesBack(t *testing.T) {
	t.Parallel()
	for _, c := range []store.OutcomeCursor{{}, {Tx: 1795248000000, Group: 7, Item: 300}, {Tx: -1, Group: -1, Item: -1}} {
		s := encodeOutcomeCursor(c)
		if got, err := decodeOutcomeCursor(s); err != nil || got != c {
			t.Errorf("%+v: got %+v, %v", c, got, err)
		}
		for i := range s {
			if bad := s[:i] + string(s[i]^1) + s[i+1:]; bad != s {
				if _, err := decodeOutcomeCursor(bad); err == nil {
					t.Errorf("tampered cursor %q is taken", bad)
				}
			}
		}
		// One of another length, though its sum is right.
		for _, bad := range []string{"", s[1:], s + "A", sealed([]byte{listOutcomes}), sealed(append(make([]byte, 0, 40), "o12345678"...)), sealed(make([]byte, 25))} {
			if _, err := decodeOutcomeCursor(bad); err == nil {
				t.Errorf("cursor %q is taken", bad)
			}
		}
	}
	if _, err := decodeCursor(listOutcomes, sealed([]byte("o1234"))); err == nil {
		t.Error("a cursor that is too short is taken")
	}
}
