// Package harness is what the black-box tests share: it builds the binary, starts, kills and asks dispatcher
// processes, has receivers that note what arrives, and keeps the ledger of what was accepted.
//
// A [Trial] ends with the verdict of package judge, which compares the ledger, SQL, the index and the
// arrivals. What it calls lost, early, doubled or overlapping was so at the receiver. Of the
// program's packages it imports package client alone.
package harness
