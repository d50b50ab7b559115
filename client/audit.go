package client

import (
	"context"
	"encoding/json"
	"time"
)

// An AuditEntry is one change that the audit log records.
type AuditEntry struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	// IP address of the caller. Null: the dispatcher made the change automatically.
	Address string `json:"address" api:"null"`
	Object  string `json:"object" api:"null"`
	Reason  string `json:"reason" api:"null"`
	// Changed values before the change. Credentials in headers and values of URL queries are masked; bodies
	// are left out. Null: the change created the object.
	Before json.RawMessage `json:"before" schema:"type: [object, \"null\"]"`
	// The same members after the change. Null: the change deleted the object.
	After  json.RawMessage `json:"after" schema:"type: [object, \"null\"]"`
	Detail json.RawMessage `json:"detail"`
	// Position in the hash chain. Null: not chained yet, which takes about a second.
	Sequence int64 `json:"sequence" api:"null"`
	// Hash of this entry and all entries before it.
	Hash string `json:"hash" api:"null"`
}

// An AuditCheck is the result of checking a part of the audit log's hash chain.
type AuditCheck struct {
	// True: no checked entry is broken.
	Sound bool `json:"sound"`
	// Number of entries that are intact.
	Checked int `json:"checked"`
	// First broken entry. Null: none.
	Broken *AuditFault `json:"broken" api:"null"`
	// Value of from for the next call. Null: the check reached the end.
	Next string `json:"next" api:"null"`
	Head string `json:"head" schema:"$ref: AuditLink"`
	// Entries of the last seconds that are not chained yet, counted up to 10,000.
	Unchained int `json:"unchained"`
}

// An AuditFault is an entry that does not fit into the hash chain.
type AuditFault struct {
	// changed: the entry or its position is not the one that was chained. missing: entries before it were
	// removed. cut: the chain ends before its head, or before the expected link. beyond: entries follow the
	// head. unexpected: the chain has another link in place of the expected one.
	Fault    string `json:"fault" schema:"enum: [changed, missing, cut, beyond, unexpected]"`
	Sequence int64  `json:"sequence"`
	ID       string `json:"id" api:"null"`
}

// Audit lists every change except accepts, newest first.
func (c *Client) Audit() List[AuditEntry] { return list[AuditEntry](c, nil, "audit") }

// VerifyAudit checks a part of the audit log's hash chain, at most 10,000 entries. From is Next of the
// previous call; empty: the first entry. Expect is a head that the caller saved earlier, and that the chain
// must contain. It requires the admin key of the settings.
func (c *Client) VerifyAudit(ctx context.Context, from, expect string) (AuditCheck, error) {
	return read[AuditCheck](ctx, c, params{"from": from, "expect": expect}.query(), "audit", "verify")
}
