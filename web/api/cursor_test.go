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
