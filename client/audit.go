package client

import (
	"context"
	"encoding/json"
	"time"
)

// An AuditEntry is one mutation.
type AuditEntry struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	// The IP address that the caller acted from. Null where the dispatcher acted by itself.
	Address string `json:"address" api:"null"`
	Object  string `json:"object" api:"null"`
	Reason  string `json:"reason" api:"null"`
	// What the change made different, as it was. Credentials in headers and values of URL queries are
	// masked; bodies
	// are left out. Null where the object was made.
	Before json.RawMessage `json:"before" schema:"type: [object, \"null\"]"`
	// The same members, as they became. Null where the object was removed.
	After  json.RawMessage `json:"after" schema:"type: [object, \"null\"]"`
	Detail json.RawMessage `json:"detail"`
	// Its place in the chain. Null until it is chained, about a second.
	Sequence int64 `json:"sequence" api:"null"`
	// The hash of the entry and of all before it.
	Hash string `json:"hash" api:"null"`
}

// An AuditCheck is what was found when a part of the audit's chain was checked.
type AuditCheck struct {
	// Nothing of what was checked is broken.
	Sound bool `json:"sound"`
	// How many entries fit.
	Checked int `json:"checked"`
	// The first entry that does not fit.
	Broken *AuditFault `json:"broken" api:"null"`
	// Where the next call goes on. Null at the end.
	Next string `json:"next" api:"null"`
	Head string `json:"head" schema:"$ref: AuditLink"`
	// Entries of the last seconds that have no place yet, counted up to 10,000.
	Unchained int `json:"unchained"`
}

// An AuditFault is an entry that does not fit into the chain.
type AuditFault struct {
	// changed: the entry or its place is not the one that was chained. missing: entries before it were
	// removed.
	// cut: the chain ends before its head, or before the expected link. beyond: there are entries after
	// the head.
	// unexpected: the chain has another link where the expected one should be.
	Fault    string `json:"fault" schema:"enum: [changed, missing, cut, beyond, unexpected]"`
	Sequence int64  `json:"sequence"`
	ID       string `json:"id" api:"null"`
}

// Audit lists every mutation but accepts, newest first.
func (c *Client) Audit() List[AuditEntry] { return list[AuditEntry](c, nil, "audit") }

// VerifyAudit checks a part of the audit's chain, at most 10,000 entries. From is the next of the call
// before, empty: the
// first entry. Expect is a head that was kept, which the chain must have. Only the admin key of the
// settings may.
func (c *Client) VerifyAudit(ctx context.Context, from, expect string) (AuditCheck, error) {
	return read[AuditCheck](ctx, c, params{"from": from, "expect": expect}.query(), "audit", "verify")
}
