package api_test

import (
	"fmt"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// from asks for a list with a key, from an address, and returns the answer.
func (f face) from(address, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/v1/callbacks", nil)
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+key)
	return f.serve(r, "")
}

// wantSlow checks an answer to say that too many wrong keys came, and when to try again.
func wantSlow(t *testing.T, rec *httptest.ResponseRecorder) {
	t.Helper()
	wantProblem(t, rec, 429, "too_many_guesses")
	if seconds, err := strconv.Atoi(rec.Header().Get("Retry-After")); err != nil || seconds < 1 || seconds > 60 {
		t.Errorf("Retry-After is %q", rec.Header().Get("Retry-After"))
	}
}

// TestWrongKeysAreSlowedDown: 1,500 of them from one address, or around one key from many, are not all
// answered; a right key passes meanwhile, used for the first time or not.
func TestWrongKeysAreSlowedDown(t *testing.T) {
	t.Parallel()
	const guesses = 1500
	reader, sender := "dk_b_read", "dk_b_admin"
	for name, c := range map[string]struct {
		address func(i int) string
		key     func(i int) string
	}{
		"one address": {
			func(int) string { return "198.51.100.7:1234" },
			func(i int) string { return fmt.Sprintf("dk_%d_guess", i) },
		},
		"around one key": {
			func(i int) string { return fmt.Sprintf("203.0.%d.%d:1234", i/250, i%250) },
			func(i int) string { return sender[:8] + strconv.Itoa(i) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFace(t, fullEngine())
			if rec := f.from("198.51.100.7:1", reader); rec.Code != 200 {
				t.Fatalf("a right key: %d", rec.Code)
			}
			told := 0
			for i := range guesses {
				rec := f.from(c.address(i), c.key(i))
				if rec.Code == 401 {
					told++
					continue
				}
				wantSlow(t, rec)
			}
			if told < 10 || told > 100 {
				t.Errorf("%d of %d wrong keys were answered with 401", told, guesses)
			}
			for _, right := range []string{reader, sender, adminKey} {
				if rec := f.from("198.51.100.7:99", right); rec.Code != 200 {
					t.Errorf("a right key after the guesses: %d %s", rec.Code, rec.Body)
				}
			}
			wantProblem(t, f.from("192.0.2.99:1", "another-wrong-key"), 401, "unauthorized")
		})
	}
}

// Guesses are counted before the key is looked up, so that parallel ones are not all told.
func TestParallelWrongKeysAreSlowedDown(t *testing.T) {
	t.Parallel()
	f := newFace(t, fullEngine())
	codes := make([]int, 200)
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() { codes[i] = f.from("198.51.100.7:1234", fmt.Sprintf("dk_%d_guess", i)).Code })
	}
	wg.Wait()
	told := 0
	for _, code := range codes {
		if code == 401 {
			told++
		} else if code != 429 {
			t.Errorf("status %d", code)
		}
	}
	if told > 100 {
		t.Errorf("%d of %d parallel guesses were told", told, len(codes))
	}
}

// Case 78. Requests beyond the rate are answered with 429, whatever they ask for; those of other keys go on.
func TestRequestsOfAKeyAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := optionsOf(fullEngine())
		o.RequestsPerSecond = 3
		f := newFaceOf(t, o)
		for range 2 {
			for _, key := range []string{"dk_b_send", adminKey} {
				bearer := "Bearer " + key
				four := `{"callbacks":[{"url":"u"},{"url":"u"},{"url":"u"},{"url":"u"}]}`
				f.do("POST", "/v1/callbacks/batch", four, "Authorization", bearer)
				for range 2 {
					if rec := f.do("POST", "/v1/callbacks", "{", "Authorization", bearer); rec.Code != 400 {
						t.Errorf("a request within the rate: %d %s", rec.Code, rec.Body)
					}
				}
				for _, path := range []string{"/v1/callbacks", "/v1/callbacks/batch"} {
					rec := f.do("POST", path, `{"url":"u"}`, "Authorization", bearer)
					wantProblem(t, rec, 429, "rate_limited")
					if rec.Header().Get("Retry-After") != "1" {
						t.Errorf("Retry-After is %q", rec.Header().Get("Retry-After"))
					}
				}
				if rec := f.do("GET", "/openapi.yaml", "", "Authorization", bearer); rec.Code != 200 {
					t.Errorf("the document: %d", rec.Code)
				}
			}
			time.Sleep(time.Second)
		}
	})
}
