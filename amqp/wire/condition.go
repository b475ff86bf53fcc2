package wire

// Error conditions of the protocol (part 2, 2.8.15 to 2.8.18; part 4, 4.5.8) that the gateway sends or
// interprets.
const (
	ConditionInternalError         Symbol = "amqp:internal-error"
	ConditionNotFound              Symbol = "amqp:not-found"
	ConditionUnauthorizedAccess    Symbol = "amqp:unauthorized-access"
	ConditionDecodeError           Symbol = "amqp:decode-error"
	ConditionResourceLimitExceeded Symbol = "amqp:resource-limit-exceeded"
	ConditionNotAllowed            Symbol = "amqp:not-allowed"
	ConditionInvalidField          Symbol = "amqp:invalid-field"
	ConditionNotImplemented        Symbol = "amqp:not-implemented"
	ConditionResourceLocked        Symbol = "amqp:resource-locked"
	ConditionPreconditionFailed    Symbol = "amqp:precondition-failed"
	ConditionResourceDeleted       Symbol = "amqp:resource-deleted"
	ConditionIllegalState          Symbol = "amqp:illegal-state"
	ConditionFrameSizeTooSmall     Symbol = "amqp:frame-size-too-small"

	ConditionConnectionForced Symbol = "amqp:connection:forced"
	ConditionFramingError     Symbol = "amqp:connection:framing-error"

	ConditionWindowViolation  Symbol = "amqp:session:window-violation"
	ConditionErrantLink       Symbol = "amqp:session:errant-link"
	ConditionHandleInUse      Symbol = "amqp:session:handle-in-use"
	ConditionUnattachedHandle Symbol = "amqp:session:unattached-handle"

	ConditionTransactionUnknownID Symbol = "amqp:transaction:unknown-id"
	ConditionTransactionRollback  Symbol = "amqp:transaction:rollback"
	ConditionTransactionTimeout   Symbol = "amqp:transaction:timeout"

	ConditionDetachForced          Symbol = "amqp:link:detach-forced"
	ConditionTransferLimitExceeded Symbol = "amqp:link:transfer-limit-exceeded"
	ConditionMessageSizeExceeded   Symbol = "amqp:link:message-size-exceeded"
	ConditionRedirect              Symbol = "amqp:link:redirect"
	ConditionStolen                Symbol = "amqp:link:stolen"
)

// Error conditions of Service Bus that its five client libraries know.
const (
	ConditionServerBusy            Symbol = "com.microsoft:server-busy"
	ConditionTimeout               Symbol = "com.microsoft:timeout"
	ConditionOperationCancelled    Symbol = "com.microsoft:operation-cancelled"
	ConditionAuthFailed            Symbol = "com.microsoft:auth-failed"
	ConditionServicePrecondition   Symbol = "com.microsoft:precondition-failed"
	ConditionArgumentError         Symbol = "com.microsoft:argument-error"
	ConditionArgumentOutOfRange    Symbol = "com.microsoft:argument-out-of-range"
	ConditionEntityDisabled        Symbol = "com.microsoft:entity-disabled"
	ConditionEntityAlreadyExists   Symbol = "com.microsoft:entity-already-exists"
	ConditionMessageLockLost       Symbol = "com.microsoft:message-lock-lost"
	ConditionSessionLockLost       Symbol = "com.microsoft:session-lock-lost"
	ConditionSessionCannotBeLocked Symbol = "com.microsoft:session-cannot-be-locked"
	ConditionMessageNotFound       Symbol = "com.microsoft:message-not-found"
	ConditionSessionNotFound       Symbol = "com.microsoft:session-not-found"
	ConditionStoreLockLost         Symbol = "com.microsoft:store-lock-lost"
	ConditionPartitionNotOwned     Symbol = "com.microsoft:partition-not-owned"
	ConditionPublisherRevoked      Symbol = "com.microsoft:publisher-revoked"
	ConditionRelayNotFound         Symbol = "com.microsoft:relay-not-found"
	ConditionServiceAddressInUse   Symbol = "com.microsoft:address-already-in-use"
	ConditionDeadLetter            Symbol = "com.microsoft:dead-letter" // sent by clients only
)
