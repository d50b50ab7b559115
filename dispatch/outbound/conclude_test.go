package outbound

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	transcript.Run(t, "testdata/retryafter.txt", func(line string) string {
		value, date, _ := strings.Cut(line, " | ")
		wait, ok := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, now)
		return fmt.Sprintf("%v, heeded %v", wait, ok)
	})
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "Fri, 31 Dec 9999 23:59:59 GMT")
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", "")
	f.Fuzz(func(t *testing.T, value, date string) {
		got, ok := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, time.Unix(1763700000, 0))
		if got < 0 || got > maxRetryAfter || !ok && got != 0 {
			t.Fatalf("%q %q: %v, %v", value, date, got, ok)
		}
	})
}
