// Package selector translates message selectors of JMS (Jakarta Messaging 2.0, 3.8.1) to the SQL filters of Service
// Bus, which package fsm/filter parses and evaluates. The gateway (amqp) calls it for the selectors of receivers and of
// subscriptions. It evaluates nothing.
//
//	JMSCorrelationID = 'a' AND size BETWEEN 1 AND 5  ──►  sys.CorrelationId = 'a' AND (size >= 1 AND size <= 5)
//
// Invariants:
//
//   - A selector that SQL accepts becomes a filter that filter.Parse accepts, and that filter.Parse limits.
//   - The work and the depth of recursion are bounded, whatever the selector is.
//
// Selectors and SQL filters agree in their operators, precedence and three-valued logic. These differences remain:
//
//   - SQL filters ignore the case of property names.
//   - A comparison of different types, such as a string with a number, is unknown and not false. The difference shows
//     below NOT only.
//   - Arithmetic with a string or a boolean fails, and the message does not match.
//   - An ordered comparison of strings compares code points; selectors allow only = and <> for strings.
//   - Of the header fields, JMSPriority, JMSTimestamp and JMSDeliveryMode cannot be used: filters do not see them.
//
// Beyond the standard, an identifier in double quotes may have any characters, as in Qpid JMS.
package selector
