package sqlstore

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// newDrafts makes drafts of 512 bytes for ten lanes.
func newDrafts(n int, now int64) []store.Draft {
	entropy := ulid.Monotonic(rand.Reader, 0)
	body := bytes.Repeat([]byte("x"), 512)
	drafts := make([]store.Draft, n)
	for i := range drafts {
		drafts[i] = store.Draft{
			Callback: store.Callback{
				ID: ulid.MustNew(ulid.Timestamp(time.Now()), entropy).String(), Project: store.DefaultProject, Kind: store.Notify,
				URL: "https://shop.example/notify", Method: "POST", Topic: "payment.succeeded", Ref: fmt.Sprint("order-", i),
				Lane: fmt.Sprint("lane-", i%10), Labels: map[string]string{"channel": "alipay"},
				Policy: store.Policy{Name: "payment", Timeout: 15 * time.Second, RetryAfterCap: time.Hour, Tiers: []time.Duration{
					15 * time.Second, 3 * time.Minute, 10 * time.Minute, 30 * time.Minute, 30 * time.Minute,
					time.Hour, 2 * time.Hour, 6 * time.Hour, 15 * time.Hour,
				}},
				Success: store.Success{Name: "http-2xx"}, Signer: "standard-v1", State: store.Scheduled, Trigger: store.BySchedule,
				DueAt: now, FirstDueAt: now, CreatedAt: now, UpdatedAt: now, ContentType: "application/json",
			},
			Body: body,
		}
	}
	return drafts
}
